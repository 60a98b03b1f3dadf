#!/bin/sh
# shellcheck disable=SC1112,SC2016 # curly quotes and dollars are what is tested
# test_wer.sh - the scorer of tests/speech/accuracy.sh against counts made by hand.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
wer=${WNPU_BUILD:-build}/wer
t_temp

# becomes TEXT NORMALISED
becomes() {
    got=$(printf '%s\n' "$1" | "$wer" -n)
    [ "$got" = "$2" ] || fail "'$1' became '$got', not '$2'"
}

test_words() {
    becomes 'HELLO, World!' 'hello world'
    becomes 'It’s “fine” — isn’t it?' 'it is fine is not it'
    becomes "I can't; he won't. They'd been, we'll" 'i can not he will not they had been we will'
    becomes 'Mr. Jones, Mrs Jones and Dr. No' 'mister jones missus jones and doctor no'
    becomes 'St. Ives, 1st street' 'saint ives 1st street'
    becomes 'well, um, (laughs) [noise] <i>so</i>' 'well so'
    becomes 'the grey theatre’s colour' 'the gray theater is color'
    becomes 'Café Ångström, Łódź, ÆØ Œ' 'cafe angstrom łodz æø œ'
    becomes "the boys' toys" 'the boys toys'
    becomes 'quiet. �I know� said he' 'quiet i know said he'
    becomes 'to-day some-one says good-bye' 'today someone says goodbye'
    becomes '' ''
}

test_numbers() {
    becomes 'twenty-one' 21
    becomes 'one hundred and five' 105
    becomes 'two thousand and twenty one' 2021
    becomes 'three million two hundred thousand' 3200000
    becomes 'nineteen forty five' 1945
    becomes 'the twenty first of May' 'the 21st of may'
    becomes 'the twelfth, a second' 'the 12th a second'
    becomes '1,250,000 people' '1250000 people'
    becomes 'I paid $5 and 3%' 'i paid 5 dollars and 3 percent'
    becomes 'a hundred years' 'a hundred years'
    becomes 'one two three' '1 2 3'
}

test_counts() {
    printf '%s\t%s\n' x/a_1.wav 'ONE TWO THREE FOUR' x/a_2.wav 'IT IS' x/b_1.wav 'THE CAT SAT' \
        x/b_2.wav 'NOT THERE' >"$T/ref.tsv"
    # One substitution; nothing; an insertion and a deletion; missing.
    printf '%s\t%s\n' x/b_1.wav 'the the cat' x/a_1.wav 'One, two, tree, four.' \
        x/a_2.wav "It's" >"$T/hyp.tsv"
    "$wer" "$T/ref.tsv" "$T/hyp.tsv" >"$T/out" 2>"$T/err" || fail "status $?"
    grep -q '^a  *2  *6  *16.67 %  *1$' "$T/out" || fail "group a: $(cat "$T/out")"
    grep -q '^b  *1  *3  *66.67 %  *2$' "$T/out" || fail "group b: $(cat "$T/out")"
    grep -q '^all  *3  *9  *33.33 %  *3$' "$T/out" || fail "all: $(cat "$T/out")"
    grep -q 'lacks 1 of 4' "$T/err" || fail "the missing one is not named"
}

t_run test_words
t_run test_numbers
t_run test_counts
t_end
