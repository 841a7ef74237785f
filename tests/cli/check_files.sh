#!/usr/bin/env bash
# tools/check_files.sh finds a call that opens, renames or removes by a path, and nothing else.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"/{actors,nn}
cat >"$folder/actors/a.c" <<'END'
/* rename(a, b) in a comment */
    exo_dir_rename(a, b, 0);
    file->open(x);
    int fd = open("/dev/null", O_RDONLY);
    if (x && rename(a, b) != 0)
END
printf 'FILE *f = fopen(path, "re");\nunlink(path);\n' >"$folder/nn/b.c"
got=$("$EXO_SOURCE/tools/check_files.sh" "$folder" | tail -n +2)
[ "$got" = $'actors/a.c:5: rename\nnn/b.c:1: fopen\nnn/b.c:2: unlink' ] || {
    echo "found: $got"
    exit 1
}
