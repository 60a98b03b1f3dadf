# layout.awk - writes a C program that prints what a compiled program knows of a header:
#
#     wnpu_params.beam 32 4 int32_t          field, offset, size, type
#     sizeof wnpu_token 24                   a structure that may not grow
#     WNPU_E_IO -3                           enumerator or constant
#     void wnpu_audio_init(wnpu_audio *, size_t)
#
# With -v roots="STRUCTURE ...": fields of these structures, and of those that they contain, alone.
# Definitions begin in the first column and end in a line that does; bit-fields are not understood.
#
# The printing program fails where a structure that may grow ends in padding, since a program may
# leave any value in it that a later version would take for a field's, and where a structure of
# roots has any.

# Lines of C without comments and with single spaces.
function squeeze(text,    at, end) {
    while ((at = index(text, "/*")) > 0) {
        end = index(substr(text, at), "*/")
        text = substr(text, 1, at - 1) " " substr(text, at + end + 1)
    }
    gsub(/[ \t\n]+/, " ", text)
    gsub(/^ | $/, "", text)
    return text
}

# A declaration of a function without the names of parameters.
function nameless(text) {
    while (match(text, /[a-z] ?[ *][a-z_0-9]+(\[\])?[,)]/)) {
        at = RSTART + RLENGTH - 1
        head = substr(text, 1, at - 1)
        sub(/[a-z_0-9]+(\[\])?$/, "", head)
        sub(/ $/, "", head)
        text = head "\001" substr(text, at)
    }
    gsub(/\001/, "", text)
    return text
}

function print_text(text) {
    printf "    puts(\"%s\");\n", text
}

function print_number(label, value) {
    printf "    printf(\"%s %%ld\\n\", (long)(%s));\n", label, value
}

function print_field(of, field, type) {
    printf "    field(\"%s\", \"%s\", offsetof(%s, %s), sizeof((%s *)0)->%s, \"%s\");\n", of, field,
           of, field, of, field, type
}

# Fields of one declaration: "int64_t t0_ms, t1_ms", "char text[252]", "int (*f)(void *user)".
function print_fields(of, text,    n, i, item, base, name, type) {
    if (match(text, /\(\*[a-z_0-9]+\)/)) {
        name = substr(text, RSTART + 2, RLENGTH - 3)
        sub(/\(\*[a-z_0-9]+\)/, "(*)", text)
        print_field(of, name, nameless(text))
        return
    }
    n = split(text, item, / ?, ?/)
    base = item[1]
    sub(/[ *]*[A-Za-z_0-9]+(\[.*\])?$/, "", base)
    for (i = 1; i <= n; i++) {
        name = item[i]
        type = i == 1 ? name : base " " name
        sub(/\[.*\]$/, "", name)
        sub(/^.*[ *]/, "", name)
        sub(name "(\\[.*\\])?$", "", type)
        type = type substr(item[i], index(item[i] "[", "["))
        if (index(item[i], "*") > 0) { # spelt as in "const char *"
            sub(/ ?\*/, " *", type)
        }
        sub(/ $/, "", type)
        print_field(of, name, type)
    }
}

# What is after the first "{" and before the last "}".
function inner(text) {
    sub(/^[^{]*\{/, "", text)
    sub(/\}[^}]*$/, "", text)
    return text
}

function grows(of) {
    return (body[of] ~ /^ *uint32_t struct_size;/ && of !~ /^wnpu_(accel|wav_reader)$/) ||
           of == "wnpu_segment"
}

function print_structure(of,    n, i, item, word, k, m) {
    shown[of]
    n = split(body[of], item, ";")
    for (i = 1; i < n; i++) {
        gsub(/^ | $/, "", item[i])
        m = roots == "" ? 0 : split(item[i], word, /[ *]+/)
        for (k = 1; k < m; k++) {
            if (word[k] in body && !(word[k] in shown)) {
                print_structure(word[k])
            }
        }
    }
    for (i = 1; i < n; i++) {
        print_fields(of, item[i])
    }
    if (roots == "" && !grows(of)) {
        print_number("sizeof " of, "sizeof(" of ")")
    } else {
        printf "    padding(\"%s\", sizeof(%s));\n", of, of
    }
}

function print_enumerators(text,    n, i, item) {
    n = split(inner(text), item, ",")
    for (i = 1; i <= n; i++) {
        gsub(/^ | $|=.*/, "", item[i])
        gsub(/ /, "", item[i])
        print_number(item[i], item[i])
    }
}

function take(text,    name) {
    text = squeeze(text)
    if (text ~ /^(typedef )?enum /) {
        if (roots == "") {
            print_enumerators(text)
        }
        return
    }
    match(text, /struct [a-z_0-9]+ \{/)
    name = substr(text, RSTART + 7, RLENGTH - 9)
    body[name] = inner(text)
    if (roots == "") {
        print_structure(name)
    }
}

BEGIN {
    print "#include ABI_SOURCE"
    print "#include <stddef.h>\n#include <stdio.h>"
    print "static size_t end;\nstatic int hole, status;"
    print "static void field(const char *of, const char *name, size_t at, size_t size,"
    print "                  const char *type)\n{"
    print "    printf(\"%s.%s %lu %lu %s\\n\", of, name, (unsigned long)at, (unsigned long)size,"
    print "           type);"
    print "    hole = at > 0 && (at != end || hole);\n    end = at + size;\n}"
    print "static void padding(const char *of, size_t size)"
    print "{\n    if (end != size" (roots == "" ? "" : " || hole") ") {"
    print "        fprintf(stderr, \"%s has padding: name it reserved, or use it\\n\", of);"
    print "        status = 1;\n    }\n}\nint main(void)\n{"
}

/^(typedef )?(struct|enum) [a-z_0-9]+ \{/ { taken = inside = 1; all = "" }
inside { all = all "\n" $0 }
inside && (/^\}/ || /\{.*\}.*;/) { take(all); inside = 0; next }
inside || roots != "" { next }

/^#define WNPU_[A-Z_0-9]+ +\(?-?[0-9]/ && !/_VERSION_/ { print_number($2, $2) }

/^(WNPU_API|typedef [^{]*\(\*)/ { declares = 1; all = "" }
declares { all = all " " $0 }
declares && /;/ {
    all = squeeze(all)
    gsub(/^WNPU_API |;$/, "", all)
    print_text(nameless(all))
    declares = 0
}

END {
    n = split(roots, root, " ")
    for (i = 1; i <= n; i++) {
        if (!(root[i] in shown)) {
            print_structure(root[i])
        }
    }
    if (roots != "") {
        print_number("SN_VERSION", "SN_VERSION")
    }
    print "    return status;\n}"
    if (!taken) {
        exit 1
    }
}
