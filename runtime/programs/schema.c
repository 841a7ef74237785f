/* The schema, made from one table of keys. tests/cli/schema.sh compares it with the parser and with
 * every YAML of the repository.
 *
 * It covers keys, types, units and choices. Options of classes, strategies, models, data sets and
 * codecs are not restricted, because plugins add to them. No state. */
#include "programs/schema.h"

#include <string.h>

/* A key of one kind of mapping. `type` is a name in `types` below, "#NAME" for a mapping of that
 * kind, "{#NAME}" for a mapping of names to such mappings, "[TYPE]" for a list, or "a|b" for one of
 * these words. */
struct key {
    const char *in, *name, *type, *help;
};

static const struct key keys[] = {
    {"graph", "exogym", "version", "Version of this format."},
    {"graph", "name", "text", "Of the run and its folder."},
    {"graph", "seed", "natural", "Decides every random number of the run."},
    {"graph", "clock", "real|virtual", "Virtual: time is predicted, nothing is waited for."},
    {"graph", "until", "time", "The run ends then; 0: when its actors do."},
    {"graph", "plugins", "[text]", "Shared objects that add classes; relative to this file."},
    {"graph", "include", "[text]",
     "Files whose actors, edges, hosts, links and variables are added to these."},
    {"graph", "variables", "values", "What ${NAME} stands for."},
    {"graph", "presets", "presets", "Assignments by name, for --preset."},
    {"graph", "changes", "recorded",
     "What was changed while a run went on: its config.json has it, and it is not read."},
    {"graph", "hosts", "{#host}", "Emulated hosts; without them each actor has one of its own."},
    {"graph", "actors", "{#actor}", "The actors by name."},
    {"graph", "edges", "[#edge]", "What goes from whom to whom."},
    {"graph", "links", "{#link}", "Emulated links between hosts, `default` for all others."},

    {"host", "count", "positive", "NAME_0, NAME_1, ...; without it one host, called NAME."},
    {"host", "up", "rate", "What all it sends shares."},
    {"host", "down", "rate", "What all it receives shares."},
    {"host", "latency", "time", "Added to that of each link."},
    {"host", "queue", "time", "What the device that limits `up` holds; 0: whatever comes."},
    {"host", "speed", "number", "Of computing; 1: this machine's, or that of declared costs."},
    {"host", "resources", "resources", "What its actors share."},
    {"host", "schedule", "[#change]", "Changes of its rates."},

    {"change", "at", "time", "From then on."},
    {"change", "for", "time", "So long; 0: for ever."},
    {"change", "every", "time", "Again after so long; 0: once."},
    {"change", "factor", "number", "Of the rates; 0: an outage."},

    {"actor", "class", "text", "exogym list classes."},
    {"actor", "count", "positive", "NAME_0, NAME_1, ..."},
    {"actor", "host", "names", "Hosts, or groups of them, that they fill in turn."},
    {"actor", "config", "map", "The class's own options."},
    {"actor", "resources", "resources", "What each needs of its host."},
    {"actor", "restart", "#restart", "What happens when it fails."},
    {"actor", "compute", "times",
     "Costs of the class's phases on a host of speed 1, instead of measured ones."},

    {"restart", "when", "never|on_failure|always", NULL},
    {"restart", "max", "natural",
     "More deaths within `within`, and it stays dead; 0: any number, but ten in a row with the "
     "same words."},
    {"restart", "within", "time", "0: for ever."},
    {"restart", "backoff", "time", "Before the first restart."},

    {"edge", "from", "text", "The actors that send."},
    {"edge", "to", "text", "The actors that receive."},
    {"edge", "carries", "text", "The port at both ends."},
    {"edge", "name", "text", "FROM>TO:CARRIES unless given."},
    {"edge", "route", "one|round_robin|broadcast|least_loaded|hash|modulo|all_reduce|gossip|listed",
     "Which of the targets."},
    {"edge", "idle_senders", "bool",
     "Of modulo: senders beyond the number of targets send nothing."},
    {"edge", "targets", "targets",
     "Of listed: the targets of all senders, or of each by its name."},
    {"edge", "buffer", "#buffer", "Where the receiver keeps what it has not taken yet."},
    {"edge", "codec", "codec", "What fp32 arrays become on the way."},
    {"edge", "every", "positive", "Of the items sent, every n-th goes over this edge."},
    {"edge", "delay", "time", "An item can be received so long after it arrived, not before."},
    {"edge", "deadline", "time", "Of waits at its ends."},
    {"edge", "link", "text", "A link without from and to, for this edge alone."},
    {"edge", "item", "bytes", "Of an item before its codec, for plans."},
    {"edge", "interval", "positive", "Steps of the sender from one item to the next, for plans."},
    {"edge", "members", "positive",
     "Of an all_reduce: how many of the actors meet in one, for plans."},
    {"edge", "engine", "text",
     "Of an all_reduce: what moves its data: auto, or exogym list engines."},
    {"edge", "equal_bits", "bool",
     "Of an all_reduce: whether the engine must promise the bits of every other."},

    {"buffer", "capacity", "positive", "Items."},
    {"buffer", "on_full", "block|drop_oldest|drop_newest|latest|fail",
     "What happens when it is full."},

    {"link", "bandwidth", "rate", "Each direction for itself."},
    {"link", "latency", "time", "One way."},
    {"link", "jitter", "time", "Up to so much is added to the latency."},
    {"link", "loss", "fraction", "Of packets."},
    {"link", "transport", "tcp|ideal",
     "With TCP's headers, slow start and loss, or bytes and latency only."},
    {"link", "schedule", "[#change]", "Changes of its bandwidth."},
    {"link", "from", "text", "Hosts at one end."},
    {"link", "to", "text", "Hosts at the other."},
    {"link", "one_way", "bool", "From `from` to `to` only."},

    {"job", "exogym", "version", "Version of this format."},
    {"job", "name", "text", "Of the run's folder."},
    {"job", "seed", "natural", "Decides every random number of the run."},
    {"job", "seeds", "seeds",
     "Each strategy runs with each seed: so many from seed on, or a list."},
    {"job", "plugins", "[text]",
     "Shared objects that add strategies and models; relative to this file."},
    {"job", "model", "named", "exogym list models."},
    {"job", "data", "named", "exogym list data."},
    {"job", "nodes", "positive", "How many nodes train."},
    {"job", "device", "text", "What the nodes compute on: cpu, cuda, cuda:0 ..., auto."},
    {"job", "resources", "resources", "What each node takes of its worker."},
    {"job", "engine", "text",
     "Moves the data of the strategies' collectives: auto, or exogym list engines."},
    {"job", "engine_suspends", "bool",
     "Whether engine nccl gives its memory of the GPU back between two exchanges."},
    {"job", "equal_bits", "bool", "Whether the engine must promise the bits of every other."},
    {"job", "collectives", "ways",
     "Which messages the strategies' collectives consist of: a way, or {way: ..., links: ...}."},
    {"job", "parallel", "parallels",
     "How the nodes share copies of the model; auto: the fastest way that fits."},
    {"job", "train", "#train", NULL},
    {"job", "strategy", "options", "exogym list strategies; with compare, what all share."},
    {"job", "compare", "[options]", "Several strategies, one after the other."},
    {"job", "presets", "presets", "Assignments by name, for --preset."},
    {"job", "clock", "real|virtual", "Virtual: time is predicted, nothing is waited for."},
    {"job", "hosts", "{#host}", "Emulated hosts that the nodes fill in turn."},
    {"job", "links", "{#link}", "Emulated links between them."},
    {"job", "compute", "times", "Costs of a step on a host of speed 1."},
    {"job", "edges", "[#job_edge]", "What is said of the strategies' exchanges."},
    {"job", "failures", "#failures", "Hosts fail at random on the virtual clock."},
    {"job", "changes", "recorded",
     "What was changed while a run went on: its config.json has it, and it is not read."},

    {"job_edge", "carries", "text", "What the strategy sends: gradients, parameters."},
    {"job_edge", "name", "text", NULL},
    {"job_edge", "codec", "codec", "What it becomes on the way."},
    {"job_edge", "deadline", "time", "Of waits for the others."},
    {"job_edge", "link", "text", "A link without from and to."},

    {"collectives", "way", "direct|tree|ring|halving|hierarchical|auto",
     "Auto: by size and links."},
    {"collectives", "links", "text",
     "measured: by the nodes on workers, when they begin; else the links.json of an earlier run."},

    {"parallel", "tensor", "positive",
     "So many consecutive nodes have a part of each layer; a divisor of nodes."},
    {"parallel", "sequence", "bool",
     "With tensor: each node has norms and residuals of a part of the tokens only."},
    {"parallel", "pipeline", "positive",
     "So many consecutive nodes have some of the layers each; a divisor of nodes."},
    {"parallel", "context", "positive",
     "So many consecutive nodes share the tokens of each sequence; a divisor of nodes."},
    {"parallel", "microbatches", "positive",
     "Pieces of the batch that pass through the stages of a pipeline one after another."},
    {"parallel", "use_fsdp", "bool", "The strategy is fsdp; false: ddp."},
    {"parallel", "sharding_strategy",
     "full_shard|shard_grad_op|no_shard|hybrid_shard|hybrid_shard_zero2", "Of fsdp."},
    {"parallel", "cpu_offload", "bool", "Of fsdp: shards are in the memory of the host."},
    {"parallel", "sync_module_states", "bool",
     "Whether the nodes begin with the parameters of node 0."},
    {"parallel", "auto", "#parallel_auto", "The fastest form of ddp and fsdp that fits."},

    {"parallel_auto", "memory", "bytes",
     "What a node has; without it, its share of this machine's."},
    {"parallel_auto", "step_time", "time", "What a node computes in a step, instead of `compute`."},

    {"train", "max_steps", "positive", "Steps of each node."},
    {"train", "num_epochs", "positive", "Passes over the data, if max_steps is not given."},
    {"train", "batch_size", "positive", "Samples per node and step."},
    {"train", "minibatch_size", "positive_or_auto",
     "Samples at once; a divisor of batch_size, or auto."},
    {"train", "shuffle", "bool", "A new order each epoch."},
    {"train", "val_size", "natural_or_none",
     "Samples of an evaluation; 0: all; none: no evaluation."},
    {"train", "val_interval", "natural", "Steps between evaluations."},
    {"train", "autocast", "autocast", "Matrix products in bfloat16, or linear layers in fp8."},
    {"train", "checkpoint_interval", "natural", "Steps between checkpoints."},
    {"train", "final_checkpoint", "bool",
     "Whether there is one at the end, so that the run can go on with more steps."},
    {"train", "correlation_interval", "natural",
     "Steps between measurements of how alike the nodes are."},
    {"train", "timeout", "number", "Seconds that a node waits for the others."},
    {"train", "save_dir", "text", "Where run folders go."},
    {"train", "elastic", "#elastic", "The run goes on when nodes die, and takes nodes back."},

    {"failures", "mean_time_between", "time", "Of a host, from its repair to its next failure."},
    {"failures", "repair", "time", "From a failure until the host is back."},
    {"failures", "detection", "time", "Until nodes that wait for the lost one know of it."},
    {"failures", "restart", "time", "Of a run that is not elastic, once all hosts are back."},
    {"failures", "seed", "natural", "Of the times of the failures."},

    {"elastic", "min_nodes", "positive", "Fewer nodes wait for others."},
    {"elastic", "grace", "time", "How long they wait; then the run ends."},
    {"elastic", "silence", "time", "A node without an answer for that long is left out."},
    {"elastic", "verify", "bool", "Compare the nodes' parameters after each exchange."},
};

#define NUMBER  "[-+]?[0-9]*\\\\.?[0-9]+([eE][-+]?[0-9]+)?"
#define OR_NAME ", {\"$ref\": \"#/$defs/variable\"}]}"

/* The types of values. A number may also be a string, because YAML 1.1 reads 1e-3 as a string. */
static const struct {
    const char *name, *json;
} types[] = {
    {"variable", "{\"type\": \"string\", \"pattern\": \"\\\\$\\\\{[A-Za-z0-9_]+\\\\}\", "
                 "\"description\": \"${NAME}\"}"},
    {"version", "{\"const\": 1}"},
    {"text", "{\"type\": [\"string\", \"number\", \"boolean\"]}"},
    {"targets", "{\"type\": [\"array\", \"object\"]}"},
    {"bool", "{\"anyOf\": [{\"type\": \"boolean\"}" OR_NAME},
    {"natural", "{\"anyOf\": [{\"type\": \"integer\", \"minimum\": 0}" OR_NAME},
    {"positive", "{\"anyOf\": [{\"type\": \"integer\", \"minimum\": 1}" OR_NAME},
    {"seeds", "{\"anyOf\": [{\"type\": \"integer\", \"minimum\": 1}, {\"type\": \"array\", "
              "\"minItems\": 1, \"items\": {\"type\": \"integer\", \"minimum\": 0}}]}"},
    {"natural_or_none",
     "{\"anyOf\": [{\"type\": \"integer\", \"minimum\": 0}, {\"const\": \"none\"}]}"},
    {"positive_or_auto",
     "{\"anyOf\": [{\"type\": \"integer\", \"minimum\": 1}, {\"const\": \"auto\"}]}"},
    {"number", "{\"anyOf\": [{\"type\": \"number\"}, {\"type\": \"string\", \"pattern\": \"^" NUMBER
               "$\"}" OR_NAME},
    {"time", "{\"anyOf\": [{\"const\": 0}, {\"type\": \"string\", \"pattern\": \"^" NUMBER
             "[ \\\\t]*(ns|us|ms|s|min|h)$\"}" OR_NAME},
    {"rate",
     "{\"anyOf\": [{\"const\": \"unlimited\"}, {\"type\": \"string\", \"pattern\": \"^" NUMBER
     "[ \\\\t]*([kMGT]?bit/s|[kMG]?B/s|[KMG]iB/s)$\"}" OR_NAME},
    {"bytes", "{\"anyOf\": [{\"const\": 0}, {\"type\": \"string\", \"pattern\": \"^" NUMBER
              "[ \\\\t]*([kMGT]?B|[KMGT]iB)$\"}" OR_NAME},
    {"fraction", "{\"anyOf\": [{\"type\": \"number\", \"minimum\": 0, \"maximum\": 0.99}, "
                 "{\"type\": \"string\", "
                 "\"pattern\": \"^" NUMBER "([ \\\\t]*%)?$\"}" OR_NAME},
    {"autocast", "{\"enum\": [\"none\", \"bf16\", \"fp8\", false, true]}"},
    {"map", "{\"type\": \"object\"}"},
    {"recorded", "{\"type\": \"array\", \"items\": {\"type\": \"object\"}}"},
    {"presets", "{\"type\": \"object\", \"additionalProperties\": {\"type\": \"object\"}}"},
    {"values", "{\"type\": \"object\", \"additionalProperties\": {\"type\": [\"string\", "
               "\"number\", \"boolean\", \"null\"]}}"},
    {"times", "{\"type\": \"object\", \"additionalProperties\": {\"$ref\": \"#/$defs/time\"}}"},
    {"resources",
     "{\"type\": \"object\", \"properties\": {\"memory\": {\"$ref\": \"#/$defs/bytes\"}}, "
     "\"additionalProperties\": {\"$ref\": \"#/$defs/number\"}}"},
    {"names", "{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"array\", \"minItems\": 1, "
              "\"items\": {\"type\": \"string\"}}]}"},
    {"named",
     "{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"object\", \"required\": [\"name\"]}]}"},
    {"options", "{\"type\": [\"string\", \"object\"]}"},
    {"ways",
     "{\"anyOf\": [{\"enum\": [\"direct\", \"tree\", \"ring\", \"halving\", \"hierarchical\", "
     "\"auto\"]}, {\"$ref\": \"#/$defs/collectives\"}]}"},
    {"parallels", "{\"anyOf\": [{\"const\": \"auto\"}, {\"$ref\": \"#/$defs/parallel\"}]}"},
    {"codec", "{\"anyOf\": [{\"$ref\": \"#/$defs/named\"}, {\"type\": \"array\", \"minItems\": 1, "
              "\"items\": {\"$ref\": \"#/$defs/named\"}}]}"},
};

static const struct {
    const char *in;
    const char *names[4];
} required[] = {
    {"actor", {"class"}},      {"edge", {"from", "to", "carries"}}, {"change", {"factor"}},
    {"job_edge", {"carries"}}, {"job", {"model", "data"}},
};

enum {
    NUM_KEYS = sizeof keys / sizeof *keys,
    NUM_TYPES = sizeof types / sizeof *types,
    NUM_REQUIRED = sizeof required / sizeof *required,
};

static json_t *
reference(const char *name, size_t length)
{
    return json_pack("{s:o}", "$ref", json_sprintf("#/$defs/%.*s", (int)length, name));
}

static json_t *
type_json(const char *type, size_t length)
{
    if (type[0] == '#')
        return reference(type + 1, length - 1);
    if (type[0] == '[')
        return json_pack("{s:s, s:o}", "type", "array", "items", type_json(type + 1, length - 2));
    if (type[0] == '{')
        return json_pack("{s:s, s:o}", "type", "object", "additionalProperties",
                         type_json(type + 1, length - 2));
    for (size_t i = 0; i < NUM_TYPES; i++)
        if (strlen(types[i].name) == length && strncmp(types[i].name, type, length) == 0)
            return reference(type, length);
    json_t *words = json_array();
    for (const char *word = type; word < type + length; word += strcspn(word, "|") + 1)
        json_array_append_new(words, json_stringn(word, strcspn(word, "|")));
    return json_pack("{s:o}", "enum", words);
}

/* A mapping of one kind. Unknown keys are not allowed. */
static json_t *
kind_json(const char *kind)
{
    json_t *properties = json_object(), *needed = json_array();
    for (size_t i = 0; i < NUM_KEYS; i++) {
        if (strcmp(keys[i].in, kind) != 0)
            continue;
        json_t *value = type_json(keys[i].type, strlen(keys[i].type));
        if (keys[i].help)
            json_object_set_new(value, "description", json_string(keys[i].help));
        json_object_set_new(properties, keys[i].name, value);
    }
    for (size_t i = 0; i < NUM_REQUIRED; i++)
        for (size_t k = 0; strcmp(required[i].in, kind) == 0 && k < 4 && required[i].names[k]; k++)
            json_array_append_new(needed, json_string(required[i].names[k]));
    json_t *value = json_pack("{s:s, s:o, s:b}", "type", "object", "properties", properties,
                              "additionalProperties", 0);
    if (json_array_size(needed) > 0)
        json_object_set(value, "required", needed);
    json_decref(needed);
    return value;
}

json_t *
exo_schema(void)
{
    json_t *defs = json_object();
    for (size_t i = 0; i < NUM_KEYS; i++)
        if (!json_object_get(defs, keys[i].in))
            json_object_set_new(defs, keys[i].in, kind_json(keys[i].in));
    for (size_t i = 0; i < NUM_TYPES; i++)
        json_object_set_new(defs, types[i].name, json_loads(types[i].json, 0, NULL));
    json_object_set_new(
        json_object_get(defs, "job"), "anyOf",
        json_pack("[{s:[s]}, {s:[s]}]", "required", "strategy", "required", "compare"));
    return json_pack("{s:s, s:s, s:s, s:s, s:{s:[s]}, s:o, s:o, s:o}", "$schema",
                     "https://json-schema.org/draft/2020-12/schema", "title", "exogym",
                     "description", "A transmission graph, or with `model` a training job.", "type",
                     "object", "if", "required", "model", "then", reference("job", 3), "else",
                     reference("graph", 5), "$defs", defs);
}
