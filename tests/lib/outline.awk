# outline.awk - sections of a C file by their banners:
#
#     /* =====...
#      * 22. aw_  the audio window and where it ends
#
# Prints for each section its first line, its lines, its functions (bodies that begin with "{" in the
# first column) and its title. With -v uses=1 prints identifiers of later sections instead, as
# "FILE:LINE: IDENTIFIER in section PREFIX": a section may use only those before it. A title names
# its prefixes ("ft_  FFT and ml_ log-mel"), which in upper case are those of its macros. Exceptions:
# the preprocessor lines of section 1, which name the parts that the file compiles more than once,
# va_list and its functions from <stdarg.h>, and the members of struct stat.
#
# With -v marks=N prints instead where more than N lines, not counting rows of tables, have neither a
# banner nor a mark ("/* ---- name ---- */"), as "FILE:LINE: LINES". With -v to=DIRECTORY writes each
# section into a file there (rs.c), and what is before the first into contents.c, for reading and
# drawing: they do not compile.
#
# With -v owners=1 prints instead who knows and writes the state of a run: the number of functions
# that take all of it ("whole 127"); for each of the structures in `owned` the sections that write one
# of its fields ("work wi_"), fields being read from the source; for what describes the caches and for
# the search, the functions ("caches wd_load"); and the sections that set counts of the statistics
# rather than adding to them ("stats lg_").
#
# With -v walk=FUNCTION prints instead how far one has to jump to read what it calls, depth first and
# each function once: "FUNCTION: N functions in M sections, K returns to a later section".

# The line without comments, strings and character constants.
function code(line,    out, c, i) {
    out = ""
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        if (comment) {
            if (substr(line, i, 2) == "*/") {
                comment = 0
                i++
            }
        } else if (substr(line, i, 2) == "/*") {
            comment = 1
            i++
        } else if (c == "\"" || c == "'") {
            for (i++; i <= length(line) && substr(line, i, 1) != c; i++) {
                if (substr(line, i, 1) == "\\") {
                    i++
                }
            }
        } else {
            out = out c
        }
    }
    return out
}

# Begins a stretch without a mark.
function stretch() {
    if (marks && counted > marks) {
        print name ":" began ": " counted " lines"
    }
    name = FILENAME
    began = FNR
    counted = 0
}

# Begins the file of a section.
function file(of) {
    if (out != "") {
        close(out)
    }
    out = to "/" of ".c"
    printf "%s", held >out
    held = ""
}

# Reads a function and what it calls.
function visit(of,    word, n, i) {
    seen[of]
    visited++
    returns += belongs[of] > at
    at = belongs[of]
    sections[at]
    n = split(calls[of], word, " ")
    for (i = 1; i <= n; i++) {
        if (word[i] in belongs && !(word[i] in seen)) {
            visit(word[i])
        }
    }
}

function finish() {
    if (section > 0 && lists) {
        printf "%6d %6d %4d  %s\n", first, FNR_last - first + 1, functions, title
    }
}

BEGIN {
    owned["ru_audio"] = "audio"
    owned["ru_place"] = "place"
    owned["ru_work"] = "work"
    owned["ru_language"] = "language"
    owned["ru_lookahead"] = "lookahead"
    owned["se_search"] = "search"
    parents["audio"] = "a audio"
    parents["place"] = "at place"
    parents["work"] = "w work"
    parents["language"] = "language l next"
    parents["lookahead"] = "f ahead"
    parents["search"] = "search"
    parents["caches"] = "e engine decoder text"
    field["caches", "positions"]
    field["caches", "window"]
    field["caches", "view"]
}

FNR == 1 {
    lists = !uses && !marks && !owners && walk == "" && to == ""
    finish()
    if (to != "") {
        file("contents")
    }
    if (lists) {
        print (NR == 1 ? "" : "\n") FILENAME "\n  line  lines functions"
    }
    section = functions = comment = after = 0
    split("", order)
    # The contents block at the top names all sections before the first one begins.
    while ((getline ahead < FILENAME) > 0 && ahead !~ /^ \*\//) {
        if (ahead ~ /^ \* +[0-9]+\. /) {
            n = split(ahead, word, /[^A-Za-z0-9_]+/)
            for (i = 1; i <= n; i++) {
                if (word[i] ~ /^[a-z][a-z]_$/) {
                    order[word[i]] = word[2] + 0
                }
            }
        }
    }
    close(FILENAME)
}

FNR == 1 || /^\/\* (=====|---- )/ { stretch() }

!/^ +[-{"0-9]/ { counted++ }

after && /^ \* +[0-9]+\. / {
    finish()
    if (to != "") {
        file(substr($3, 1, 2))
    }
    first = FNR - 1
    functions = 0
    title = substr($0, 4)
    split(title, word, /[. ]+/)
    section = word[1] == "" ? word[2] + 0 : word[1] + 0
}

{
    if (to != "" && held != "") {
        printf "%s", held >out
        held = ""
    }
    after = /^\/\* =+$/
    FNR_last = FNR
    if (to != "" && after) {
        held = $0 "\n"
    } else if (to != "") {
        print >out
    }
}

/^\{/ { functions++ }

owners && /^[A-Za-z]/ { head = "" }

owners { head = head $0 }

owners && /^\{/ && head ~ /ru_run \*/ { whole++ }

owners && /^\{/ && match(head, /[a-z0-9_]+\(/) { writer = substr(head, RSTART, RLENGTH - 1) }

walk != "" && section > 0 {
    n = split(code($0), word, /[^A-Za-z0-9_]+/)
    if (/^[A-Za-z].*\(/ && match($0, /[A-Za-z0-9_]+\(/)) {
        named = substr($0, RSTART, RLENGTH - 1)
    } else if (/^\{/) {
        inside = named
        belongs[inside] = section
    } else if (/^\}/) {
        inside = ""
    }
    for (i = 1; i <= n && inside != ""; i++) {
        if (word[i] ~ /^[a-z][a-z]_[a-z0-9]/) {
            calls[inside] = calls[inside] " " word[i]
        }
    }
}

# The fields of a structure that is owned: the last word before ";", "," or "[".
owners && /^typedef struct [a-z_]+ \{/ { inside_of = owned[$3] }

owners && inside_of != "" && /^ +[a-z]/ {
    line = code($0)
    gsub(/\[[^]]*\]/, "", line)
    n = split(line, word, /[;,]/)
    for (i = 1; i < n; i++) {
        gsub(/.*[ *]/, "", word[i])
        field[inside_of, word[i]]
    }
}

owners && /^}/ { inside_of = "" }

# Writes of a.b.field, where b is one of the names that variables of its structure have.
owners && section > 0 {
    line = code($0)
    split(title, word, /[. ]+/)
    name = word[1] == "" ? word[3] : word[2]
    gsub(/->/, ".", line)
    gsub(/[=!<>]=/, "~", line)
    gsub(/\[[^]]*\]/, "", line)
    gsub(/ *([-+|]=|\+\+|--|=[^=])/, " = ", line)
    while (section >= order["ru_"] && match(line, /[a-z_]+\.[a-z_0-9]+ = /)) {
        split(substr(line, RSTART, RLENGTH - 3), word, ".")
        for (of in parents) {
            if ((of, word[2]) in field && index(" " parents[of] " ", " " word[1] " ") > 0) {
                writes[of " " (of ~ /^(caches|search)$/ ? writer : name)]
            }
        }
        line = substr(line, RSTART + RLENGTH)
    }
    if (code($0) ~ /(^|[^a-z_])stats(->|\.)[a-z_]+_ms *=[^=]/) {
        writes["stats " name]
    }
}

uses && !(section == 1 && /^#/) {
    n = split(code($0), word, /[^A-Za-z0-9_]+/)
    for (i = 1; i <= n && section > 0; i++) {
        prefix = tolower(substr(word[i], 1, 3))
        if (word[i] ~ /^([a-z][a-z]_[a-z0-9]|[A-Z][A-Z]_[A-Z0-9])/ && prefix in order &&
            order[prefix] > section && word[i] !~ /^va_(list|start|arg|copy|end)$/ &&
            word[i] !~ /^st_(mode|size)$/) {
            print FILENAME ":" FNR ": " word[i] " in section " section
        }
    }
}

END {
    stretch()
    finish()
    for (name in writes) {
        print name
    }
    if (owners) {
        print "whole " whole + 0
    }
    if (walk != "") {
        at = belongs[walk]
        visit(walk)
        for (i in sections) {
            entered++
        }
        print walk ": " visited " functions in " entered " sections, " returns + 0 \
              " returns to a later section"
    }
}
