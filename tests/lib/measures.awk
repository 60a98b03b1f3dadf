# measures.awk - how entangled whisper_npu.c is, in numbers to be compared between two commits (make
# measures). Definitions:
#
#   inputs    Writes of what a decoding reads outside the section that owns it: content of the audio
#             window (aw_), encoder positions and the index of the caches (wd_, se_), the language
#             (wd_), windows ahead (aw_), contents and least end of the search (se_), device, origin
#             and checkpoint of the window's text (wi_). ru_begin(), sn_ and detection (st_), which
#             begin, restore and set the run as a whole, are not counted.
#   chains    Lines with "status = status == WNPU_OK ?".
#   wide      Functions with six parameters or more; pointers to functions are not counted.
#   rules     Functions of ju_, se_, al_, aw_, lg_, wd_, wi_ and tt_ that compare with a number: a
#             literal of two digits or with a decimal point, a constant in milliseconds or decibels
#             (.._MS, .._DB), or a limit of ju_, as a constant (JU_..) or in a table (ju_..[..]).
#             "thresholds" are these comparisons. Shifts are none. "judges" are the rules in ju_, and
#             "strays" comparisons with limits of ju_ elsewhere.
#   limits    Limits of ju_: constants with a value, and rows of tables.
#
# Functions that take the whole run ("whole") and jumps on a walk are counted by outline.awk. With
# -v list=1 prints the inputs, too.

# The line without comments and strings.
function code(line,    at, end) {
    if (comment) {
        end = index(line, "*/")
        if (end == 0) {
            return ""
        }
        line = substr(line, end + 2)
        comment = 0
    }
    gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
    while ((at = index(line, "/*")) > 0) {
        end = index(substr(line, at), "*/")
        if (end == 0) {
            comment = 1
            return substr(line, 1, at - 1)
        }
        line = substr(line, 1, at - 1) substr(line, at + end + 1)
    }
    return line
}

# Parameters of a function's head: commas outside of inner parentheses.
function parameters(text,    i, c, depth, n) {
    n = 1
    for (i = index(text, "("); i > 0 && i <= length(text); i++) {
        c = substr(text, i, 1)
        depth += (c == "(") - (c == ")")
        n += c == "," && depth == 1
        if (depth == 0) {
            break
        }
    }
    return n
}

# Matches of a pattern in a line.
function count(line, pattern,    n) {
    n = gsub(pattern, "", line)
    return n
}

function input(line, pattern, owners) {
    if (section !~ "^(" owners "|ru_|sn_|st_)$" && line ~ pattern) {
        n_inputs += count(line, pattern)
        if (list) {
            print FILENAME ":" FNR ": " line
        }
    }
}

after && /^ \* +[0-9]+\. / {
    section = $3
    if (section !~ /^[a-z][a-z]_$/) {
        section = $2
    }
}

{
    after = /^\/\* =+$/
    line = code($0)
}

/^[A-Za-z]/ { head = "" }
{ head = head " " line }

/^\{/ {
    wide += (parameters(head) >= 6)
    decides = 0
}

/^\}/ && decides {
    rules++
    judges += section == "ju_"
    thresholds += decides
    decides = 0
}

{
    gsub(/->/, ".", line)
    chains += (line ~ /status = status == WNPU_OK [?]/)
    set = " *[-+|]?=([^=]|$)"
    input(line, "(^|[^a-z_])(a|audio)\\.content" set, "aw_")
    input(line, "(^|[^a-z_])(e|engine)\\.positions" set, "wd_")
    input(line, "(^|[^a-z_])decoder\\.window" set, "se_|wd_")
    input(line, "(^|[^a-z_])(l|language)\\.id" set, "wd_")
    input(line, "(^|[^a-z_])(f|ahead)\\.n" set, "aw_")
    input(line, "(^|[ (!])se_invalidate\\(", "se_|wd_")
    input(line, "(^|[^a-z_])(s|search)\\.least_end" set, "se_")
    input(line, "(^|[^a-z_])(w|work)\\.(device|resumable|origin(\\.[a-z_]+)?)" set, "wi_")
    gsub(/<<|>>/, " ", line)
    limit = "[<>]=? *(\\(int64_t\\)|\\(size_t\\))?(JU_[A-Z_]+|ju_[a-z_]+\\[)"
    strays += section == "ju_" ? 0 : count(line, limit)
    if (section ~ /^(ju_|se_|al_|aw_|lg_|wd_|wi_|tt_)$/ && line !~ /^#/) {
        decides += count(line, "[<>]=? *-?[0-9]*\\.[0-9]+f?")
        decides += count(line, "[<>]=? *-?[0-9][0-9]+[^0-9.]")
        decides += count(line, limit)
        gsub(limit, "", line)
        decides += count(line, "[<>]=? *[A-Z][A-Z]_[A-Z_]*_(MS|DB)")
    }
    if (section == "ju_") {
        table = line ~ /^static const .* = [{]$/ || (table && line !~ /^}/)
        limits += line ~ /^#define JU_[A-Z_]+ ./ || line ~ /^static const .* = [{].*[}];/ ||
                  (table && line ~ /^    (\[[A-Z_]+\] = )?[{0-9]/)
    }
}

END {
    print "inputs " n_inputs + 0
    print "chains " chains + 0
    print "wide " wide + 0
    print "rules " rules + 0
    print "thresholds " thresholds + 0
    print "judges " judges + 0
    print "strays " strays + 0
    print "limits " limits + 0
}
