#!/usr/bin/env bash
# A folder may come from elsewhere, with links and pipes where a program has files
# (runtime/base/dir.h, file.h). Finds what opens, makes, renames or removes by a path and does not
# go through dir.c or file.c, unless the table below says why it may. Prints each offence and ends
# with 1 if there is one; so does a line of the table that nothing needs any more. check_files.sh
# [FOLDER]: another tree than the one that this file lies in.
set -u
cd "${1:-"$(dirname "$0")/.."}" || exit 1

# FILE CALLS WHY: the calls that the file may use.
allowed=(
    'runtime/base/dir.c open,openat,mkdirat,unlinkat,renameat,renameat2 this is where the names are looked up'
    'runtime/base/file.c open,unlinkat open only to read, and only plain files; unlinkat below a folder of exo_dir_list'
    'runtime/base/input.c open what a person hands over may be a pipe'
    'runtime/base/memory_limits.c fopen limits of the control group'
    'runtime/programs/where.c fopen @FILE on the command line may be a pipe'
    'runtime/cluster/place.c open,fopen,mkdir,opendir,unlink the private folder of the cluster, checked by make_private'
    'runtime/cluster/head.c mkdir ~/.local/state'
    'runtime/cluster/durable.c open the state, which SQLite opens by its path too'
    'runtime/cluster/cluster_keeper.c open not through links, and only plain files'
    'runtime/cluster/epitaph.c opendir,unlinkat the private folder of the cluster'
    'runtime/net/key_file.c open,unlink keys: O_EXCL, modes and owners are checked'
    'runtime/net/allow_list.c opendir keys: modes and owners are checked'
    'runtime/net/door.c unlink a socket in the private folder of the cluster'
    'runtime/net/net.c unlink a socket in the private folder of the cluster'
    'runtime/net/socket.c unlink a socket in the private folder of the cluster'
    'runtime/store/segment.c open,openat descriptors of other processes, looked at before'
    'runtime/net/process.c fopen /proc'
    'runtime/programs/local_cluster.c fopen /proc'
    'runtime/programs/doctor.c fopen,opendir /sys'
    'runtime/programs/folder.c remove,nftw a folder that this process made, nobody else may enter it'
    'runtime/programs/cluster_folder.c mkdtemp a folder of a random name, which nobody else may enter'
    'runtime/programs/local_cluster.c link,mkdir a folder that this process made, nobody else may enter it'
    'runtime/programs/export_files.c openat,unlinkat O_NOFOLLOW, below an open folder'
    'runtime/programs/graph_folder.c unlinkat below a folder of exo_dir_list'
    'runtime/report/metrics.c unlinkat below a folder of exo_dir_list'
    'actors/run_folder.c unlinkat below a folder of exo_dir_list'
    'actors/checkpoint.c unlinkat below a folder of exo_dir_list'
    'experience/checkpoints.c unlinkat below a folder of exo_dir_list'
    'nn/pretrained/save.c unlinkat below a folder of exo_dir_list'
    'nn/corpus/tokenize.c opendir,unlinkat known names below an open folder'
    'nn/corpus/documents.c opendir only to read'
)
calls='open|open64|openat|openat2|creat|fopen|freopen|opendir|rename|renameat|renameat2|unlink|unlinkat|remove|rmdir|mkdir|mkdirat|mkdtemp|mkstemp|mkostemp|mkfifo|mknod|tmpfile|tempnam|mktemp|truncate|link|linkat|symlink|symlinkat|chmod|fchmodat|chown|lchown|nftw|ftw|fts_open'

folders=()
for folder in actors builtins environments experience learning nn runtime strategies; do [ -d "$folder" ] && folders+=("$folder"); done
# FILE:LINE:CALL, without comments, texts, and the process's own files: /dev/null, /proc/self,
# /proc/meminfo, /sys/fs/cgroup.
found=$(grep -rnE "(^|[^_a-zA-Z0-9.>\"])($calls)\(" --include='*.c' --include='*.h' "${folders[@]}" |
    grep -vE '^[^:]*:[0-9]*:[[:space:]]*(/?\*|//)|\("/(dev/null|proc/(self|meminfo|sys)|sys/fs/cgroup)' |
    sed -E "s#^([^:]*:[0-9]*):.*[^_a-zA-Z0-9.>\"]($calls)\(.*#\1:\2#; t; s#^([^:]*:[0-9]*):($calls)\(.*#\1:\2#")

status=0
used=' '
while IFS=: read -r file line call; do
    [ -n "$file" ] || continue
    may=
    for i in "${!allowed[@]}"; do
        read -r name list _ <<<"${allowed[i]}"
        if [ "$name" = "$file" ] && [[ ",$list," == *",$call,"* ]]; then
            may=1
            used+="$name:$call "
        fi
    done
    if [ -z "$may" ]; then
        [ $status = 1 ] || echo 'Files and folders are reached by exo_dir_... and exo_file_..., or tools/check_files.sh says why not:'
        echo "$file:$line: $call"
        status=1
    fi
done <<<"$found"
[ $# = 0 ] || exit $status
for entry in "${allowed[@]}"; do
    read -r name list _ <<<"$entry"
    for call in ${list//,/ }; do
        [[ "$used" == *" $name:$call "* ]] && continue
        echo "tools/check_files.sh: $name does not call $call any more"
        status=1
    done
done
exit $status
