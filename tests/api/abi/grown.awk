# grown.awk - awk -f grown.awk OLD NEW: complains, with status 1, where NEW is more than OLD with
# something appended. Both are what the program of layout.awk prints. Every line of OLD is in NEW;
# but a reserved field may get a name. New fields begin where those of OLD end.

{ place = "" }

function complain(why) {
    print why
    bad = 1
}

/^[a-z_]+\.[a-z_0-9]+ / {
    split($1, part, ".")
    place = part[1] " " $2 " " $3
    if (NR == FNR) {
        fields[part[1]]
        end = $2 + $3
        ends[part[1]] = end > ends[part[1]] + 0 ? end : ends[part[1]]
        if (part[2] ~ /^reserved/) {
            spare[place] = $0
        }
    } else {
        at[place]
        if (!($0 in old) && !(place in spare) && part[1] in fields && $2 < ends[part[1]]) {
            complain($1 " is not at the end of its structure")
        }
    }
}

NR == FNR { old[$0] = place; next }
{ new[$0] }

END {
    for (line in old) {
        if (!(line in new) && !(old[line] in spare && spare[old[line]] == line &&
                                old[line] in at)) {
            complain("programs rely on: " line)
        }
    }
    exit bad
}
