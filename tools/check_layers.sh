#!/usr/bin/env bash
# Keeps every library, raw memory, threads and packing in the folder that owns it.
# tools/check_includes.py and tools/check_links.py keep the layers apart; this checks what they
# cannot see. Prints each offence and ends with 1 if there is one.
set -u
cd "$(dirname "$0")/.." || exit 1

status=0
# only HEADER_PATTERN FOLDER_PATTERN REASON
only() {
    local hits
    hits=$(grep -rnE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($1)[>\"]" \
        --include='*.c' --include='*.h' --include='*.cu' --include='*.cc' include runtime nn learning experience strategies environments actors builtins examples 2>/dev/null |
        grep -vE "^($2)")
    if [ -n "$hits" ]; then
        printf '%s\n%s\n' "$3" "$hits"
        status=1
    fi
}
only 'dnnl[a-z_]*\.h' 'nn/cpu/' 'oneDNN belongs to nn/cpu:'
only 'cuda[a-z_]*\.h|cublas[a-zA-Z_0-9]*\.h|cudnn[a-z_0-9]*\.h' 'nn/cuda/' 'CUDA belongs to nn/cuda:'
only 'nccl\.h' 'runtime/nccl/' 'NCCL belongs to runtime/nccl:'
only 'mpi\.h' 'runtime/mpi/' 'MPI belongs to runtime/mpi:'
only 'box2d/.*' 'environments/box2d/' 'Box2D belongs to environments/box2d:'
only 'zmq\.h' 'runtime/net/' 'ZeroMQ belongs to runtime/net:'
only '[a-z_]+\.pb-c\.h|protobuf-c/.*' 'runtime/wire/|runtime/cluster/|runtime/protocol/' 'Generated code belongs to runtime/wire, runtime/cluster and runtime/protocol:'
only 'sqlite3\.h' 'runtime/cluster/' 'SQLite belongs to runtime/cluster:'
only 'seccomp\.h' 'runtime/programs/exogym-filter\.c' 'Filters of system calls belong to the head:'
only 'libfyaml\.h' 'runtime/base/' 'YAML belongs to runtime/base:'
only 'zstd\.h|lz4\.h' 'runtime/codec/' 'Compression belongs to runtime/codec:'
only 'jansson\.h' 'nn/|actors/|experience/|runtime/graph/|runtime/report/|runtime/programs/|runtime/cluster/' 'JSON does not belong here:'
only 'pcre2\.h|unicase\.h|uninorm\.h|unictype\.h' 'nn/text/' 'Regular expressions and Unicode belong to nn/text:'
only 'openssl/.*' 'nn/' 'Hashes belong to nn:'
only 'curl/.*' 'nn/' 'Downloads belong to nn:'
only 'pthread\.h' 'runtime/base/|runtime/store/|runtime/net/|runtime/actor/|runtime/comm/|runtime/link/|runtime/graph/|runtime/cluster/|runtime/mpi/|runtime/nccl/|runtime/programs/exogym-node\.c|runtime/programs/local_cluster\.c|nn/loader\.c|nn/device/joint\.c|nn/cuda/cudnn_library\.cu|nn/cuda/engine\.cu|nn/cuda/memory\.cu|nn/cuda/quiet\.cu|nn/cuda/recorders\.cu|nn/cuda/share\.cu|experience/given\.c|experience/uptake\.c|actors/fit\.c|actors/replica\.h' 'Threads do not belong here:'

raw=$(grep -rnE '(^|[^_a-zA-Z.>])(malloc|calloc|realloc|strdup|strndup|free|aligned_alloc|posix_memalign)\(' \
    --include='*.c' --include='*.h' runtime nn learning experience strategies environments actors builtins 2>/dev/null |
    grep -vE '^runtime/base/memory\.c|^[^:]*:[0-9]*:[[:space:]]*(/?\*|//)')
if [ -n "$raw" ]; then
    printf 'Memory comes from exo_calloc and goes to exo_free:\n%s\n' "$raw"
    status=1
fi

# With the default floating-point environment, a stack that is large enough, and an error that names the
# limits. Programs export no such function to plugins: abort.c has its own.
started=$(grep -rnE '(^|[^_a-zA-Z.>])(pthread_create|thrd_create)\(|std::thread' \
    --include='*.c' --include='*.h' --include='*.cu' --include='*.cc' runtime nn learning experience strategies environments actors builtins 2>/dev/null |
    grep -vE '^runtime/(base/thread|nccl/abort)\.c')
if [ -n "$started" ]; then
    printf 'Threads start by exo_thread_start:\n%s\n' "$started"
    status=1
fi

# protobuf-c's own packing overflows where a string has grown since its size was computed.
unbounded=$(grep -rnE 'protobuf_c_message_pack\(|__pack\(' --include='*.c' --include='*.h' runtime tests bench 2>/dev/null |
    grep -v '^runtime/wire/pack\.h')
if [ -n "$unbounded" ]; then
    printf 'Messages are packed by runtime/wire/pack.c:\n%s\n' "$unbounded"
    status=1
fi

# Examples and plugins use the public headers only.
private=$(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' --include='*.c' --include='*.h' include examples 2>/dev/null |
    while IFS=: read -r file line text; do # a header of the example's own is fine
        [ -e "$(dirname "$file")/$(sed 's/.*"\(.*\)".*/\1/' <<<"$text")" ] || printf '%s:%s:%s\n' "$file" "$line" "$text"
    done)
if [ -n "$private" ]; then
    printf 'Public headers and examples include <exogym/...> only:\n%s\n' "$private"
    status=1
fi
exit $status
