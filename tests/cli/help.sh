#!/usr/bin/env bash
# Help, manual pages and completion scripts come from one table, so each has every option and
# operand; the pages are clean man(7). What a table has is read from the completion script, whose
# lines are the easiest to take apart.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

# shellcheck disable=SC1090
source <("$EXOGYM" completion bash)
commands=$("$EXOGYM" list commands | cut -d' ' -f1)

# Options of a command, or of the program.
options() {
    local kind
    _exogym_options "$1:"
    echo "${kind#words}"
}

# --- Plain text
# -------------------------------------------------------------------------------------------------------

for command in '' $commands; do
    # shellcheck disable=SC2086
    ok help $command
    [ "$(awk 'length > 100' out)" = '' ] || fail "help $command: a line is too long: $(awk 'length > 100' out)"
    [ -n "$(options "$command")" ] || fail "no options of '$command'"
    for option in $(options "$command"); do
        grep -qE -- "^  (-., )?$option( |\[|\$)" out || fail "help $command does not explain $option: $(cat out)"
    done
    for section in 'Usage: exogym' 'Options:' 'Exit status:'; do
        has out "$section"
    done
done
for text in 'Usage: exogym run JOB.yaml [OPTIONS]' '  --set KEY=VALUE ' 'Examples:' 'DIR/NAME/STRATEGY/result.json' '  129, 130, 143'; do
    ok help run
    has out "$text"
done
ok help plot
has out 'Usage: exogym plot RUN... -o FILE [OPTIONS]'
has out '  -o, --output FILE   The picture'

# --- Manual pages
# -----------------------------------------------------------------------------------------------------

ok help --man run
has out '.TH "EXOGYM\-RUN" 1'
has out 'exogym\-run \- trains what'
has out '[\fB\-\-set\fR\ \fIKEY=VALUE\fR]...'
has out 'the job\(aqs train.save_dir'
[ "$(grep -cE "^'|^\\.[^A-Za-z]" out)" = 0 ] || fail "a text looks like a request: $(grep -E "^'|^\\.[^A-Za-z]" out)"
[ "$(grep -v '^\.' out | grep -cE "(^|[^\\\\])-|'")" = 0 ] || fail "a '-' or ' is not escaped"

for command in '' $commands; do
    # shellcheck disable=SC2086
    ok help --man $command
    for option in $(options "$command"); do
        has out "${option//-/\\-}"
    done
    [ "$(awk 'length > 120' out)" = '' ] || fail "help --man $command: a line is too long"
    if command -v groff >/dev/null; then
        LC_ALL=C.UTF-8 groff -man -Tutf8 -ww out >page 2>warnings || fail "groff does not read the page of '$command'"
        [ ! -s warnings ] || fail "groff warns of the page of '$command': $(cat warnings)"
        [ -s page ] || fail "the page of '$command' is empty"
    fi
    if command -v man >/dev/null; then
        LC_ALL=C.UTF-8 man --warnings -l out 2>warnings >page
        [ ! -s warnings ] || fail "man warns of the page of '$command': $(cat warnings)"
    fi
    if command -v lexgrog >/dev/null; then
        lexgrog out >found 2>&1 || fail "apropos would not find the page of '$command': $(cat found)"
    fi
    if command -v mandoc >/dev/null; then
        mandoc -Tlint -Wwarning out | grep -v 'missing date' >warnings
        [ ! -s warnings ] || fail "mandoc warns of the page of '$command': $(cat warnings)"
    fi
done
ok help --man
for command in $commands; do
    has out "\\fBexogym\\-$command\\fR(1)"
done

# The build has made the same pages, and scripts.
share=$EXO_BUILD/share/exogym
if [ -d "$share" ]; then
    for command in $commands; do
        "$EXOGYM" help --man "$command" | cmp -s - "$share/man/man1/exogym-$command.1" ||
            fail "the build's page of $command is another"
    done
    for file in man/man1/exogym.1 bash-completion/completions/exogym zsh/site-functions/_exogym fish/vendor_completions.d/exogym.fish; do
        [ -s "$share/$file" ] || fail "$share/$file is not built"
    done
fi

# The documentation names every command and every option.
for command in $commands; do
    grep -qE "^exogym $command( |\$)" "$EXO_SOURCE/docs/cli.md" || fail "docs/cli.md does not have the command $command"
    for option in $(options "$command"); do
        grep -qF -- "$option" "$EXO_SOURCE/docs/cli.md" || fail "docs/cli.md does not have $option of $command"
    done
done

[ "$failures" = 0 ] || exit 1
if ! command -v groff >/dev/null && ! command -v man >/dev/null && ! command -v mandoc >/dev/null; then
    echo "no groff, man or mandoc is installed, so nobody read the pages: skipped"
    exit 77
fi
