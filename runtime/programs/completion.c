/* The program's completion scripts, made from its commands' tables. No state.
 *
 * The scripts' functions are named "_exogym_..." or "__exogym_...". The scripts ask `exogym list`
 * for registered names at completion time, so that they stay correct when the registries change. */
#include <stdio.h>
#include <string.h>

#include "programs/program.h"

/* The program's name with '_' for '-', which a shell function's name can contain. */
static const char *
function_name(void)
{
    static char name[64];
    snprintf(name, sizeof name, "%s", exo_program()->name);
    for (char *c = name; *c; c++)
        if (*c == '-')
            *c = '_';
    return name;
}

/* The registry of a kind of word, as `exogym list` names it; NULL: not in a registry. */
static const char *
registry_of(exo_word_kind kind)
{
    switch (kind) {
    case EXO_WORD_STRATEGY:
        return "strategies";
    case EXO_WORD_MODEL:
        return "models";
    case EXO_WORD_DEVICE:
        return "devices";
    case EXO_WORD_DATA:
        return "downloads";
    default:
        return NULL;
    }
}

/* Prints the choices of an argument that has a fixed list: its own words, or the commands. */
static void
print_words(const exo_arg *arg)
{
    if (arg->word == EXO_WORD_COMMAND) {
        for (const exo_command *const *c = exo_program()->commands; c && *c; c++)
            printf("%s%s", c == exo_program()->commands ? "" : " ", (*c)->name);
        return;
    }
    for (const char *c = arg->value; *c; c++)
        putchar(*c == '|' ? ' ' : *c);
}

/* Prints `text` for use within single quotes. `quote` stands for a quote; characters of `special`
 * get a backslash. */
static void
print_quoted(const char *text, const char *quote, const char *special)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs(quote, stdout);
        else
            printf("%s%c", strchr(special, *text) ? "\\" : "", *text);
}

/* Calls `print` for each command, or for the program if it is itself the command. */
static void
each_command(void (*print)(const exo_command *command))
{
    if (!exo_program()->commands)
        print(exo_program());
    for (const exo_command *const *c = exo_program()->commands; c && *c; c++)
        print(*c);
}

/* The command's name in a script; "" for a program of one command. */
static const char *
label(const exo_command *command)
{
    return command == exo_program() ? "" : command->name;
}

/* --- bash ------------------------------------------------------------------------------------- */

/* Prints the script's value of `kind` for an argument. */
static void
bash_kind(const exo_arg *arg)
{
    const char *registry = registry_of(arg->word);
    fputs(") kind='", stdout);
    if (registry) {
        printf("list %s%s", registry, arg->word == EXO_WORD_DATA ? " -f" : "");
    } else if (arg->word == EXO_WORD_FIXED || arg->word == EXO_WORD_COMMAND) {
        fputs("words ", stdout);
        print_words(arg);
    } else {
        fputs(arg->word == EXO_WORD_FILE     ? "-f"
              : arg->word == EXO_WORD_FOLDER ? "-d"
                                             : "text",
              stdout);
    }
    puts("' ;;");
}

static void
bash_values(const exo_command *command)
{
    const exo_arg *arg;
    for (size_t i = 0; (arg = exo_option_at(command, i)); i++) {
        if (!arg->value)
            continue;
        printf("    %s:%s", label(command), arg->name);
        if (arg->brief)
            printf(" | %s:%s", label(command), arg->brief);
        bash_kind(arg);
    }
}

static void
bash_operands(const exo_command *command)
{
    const exo_arg *arg;
    for (size_t i = 0; (arg = exo_operand_at(command, i)); i++) {
        if (arg->kind == EXO_ARG_LIST)
            printf("    %s:*", label(command));
        else
            printf("    %s:%zu", label(command), i + 1);
        bash_kind(arg);
    }
}

static void
bash_options(const exo_command *command)
{
    const exo_arg *arg;
    printf("    %s:) kind='words", label(command));
    for (size_t i = 0; (arg = exo_option_at(command, i)); i++)
        printf(" %s", arg->name);
    puts("' ;;");
}

/* Prints the three functions that say what can stand in each place. */
static void
bash_tables(const char *name)
{
    printf("# Completes the arguments of %s in bash.\n"
           "#\n"
           "# `kind` is what can come: text (anything), -f (files), -d (folders), \"list WHAT\" "
           "(what `exogym list WHAT`\n"
           "# names), \"list WHAT -f\" (or a file), \"words ...\" (these); empty: nothing. Each is "
           "asked by \"COMMAND:\" "
           "and what follows.\n\n"
           "_%s_value() {\n    case $1 in\n",
           exo_program()->name, name);
    each_command(bash_values);
    printf("    *) kind= ;;\n    esac\n}\n\n_%s_operand() {\n    case $1 in\n", name);
    each_command(bash_operands);
    printf("    *) kind= ;;\n    esac\n}\n\n_%s_options() {\n    case $1 in\n", name);
    if (exo_program()->commands)
        bash_options(exo_program());
    each_command(bash_options);
    printf("    *) kind= ;;\n    esac\n}\n\n");
}

static void
bash_reply(const char *name)
{
    printf("_%s_reply() {\n"
           "    case $kind in\n"
           "    -*)\n"
           "        compopt -o filenames 2>/dev/null\n"
           "        mapfile -t COMPREPLY < <(compgen \"$kind\" -- \"$1\")\n"
           "        ;;\n"
           "    list*' -f')\n"
           "        compopt -o filenames 2>/dev/null\n"
           "        kind=${kind%% -f}\n"
           "        mapfile -t COMPREPLY < <(compgen -W \"$(exogym list \"${kind#list }\" "
           "2>/dev/null | cut -d' ' -f1)\" -- \"$1\"; compgen -f -- \"$1\")\n"
           "        ;;\n"
           "    list*)\n"
           "        mapfile -t COMPREPLY < <(compgen -W \"$(exogym list \"${kind#list }\" "
           "2>/dev/null | cut -d' ' -f1)\" -- \"$1\")\n"
           "        ;;\n"
           "    words*) mapfile -t COMPREPLY < <(compgen -W \"${kind#words }\" -- \"$1\") ;;\n"
           "    esac\n"
           "}\n\n",
           name);
}

/* Completes the first word with a command, if the program has several. */
static void
bash_commands(const char *name)
{
    if (!exo_program()->commands)
        return;
    fputs("    if ((COMP_CWORD == 1)); then\n"
          "        kind='words",
          stdout);
    for (const exo_command *const *c = exo_program()->commands; *c; c++)
        printf(" %s", (*c)->name);
    printf("'\n"
           "        [[ $current == -* ]] && _%s_options :\n"
           "        _%s_reply \"$current\"\n"
           "        return\n"
           "    fi\n"
           "    command=${COMP_WORDS[1]}\n"
           "    i=2\n",
           name, name);
}

static void
bash_place(const char *name)
{
    printf("    for (( ; i < COMP_CWORD; i++)); do\n"
           "        word=${COMP_WORDS[i]}\n"
           "        if [[ $word == [=:]* ]]; then\n"
           "            # bash divides words there: the value of an option comes next, or more of "
           "the word before.\n"
           "            [[ $kind ]] || ((i++))\n"
           "        elif [[ $kind ]]; then\n"
           "            kind=\n"
           "        elif [[ $word == -- && ! $only_operands ]]; then\n"
           "            only_operands=1\n"
           "        elif [[ $word == -?* && ! $only_operands ]]; then\n"
           "            _%s_value \"$command:$word\"\n"
           "        else\n"
           "            ((place++))\n"
           "        fi\n"
           "    done\n"
           "    ((i > COMP_CWORD)) && return\n"
           "    if [[ $current == [=:]* ]]; then\n"
           "        [[ $kind ]] || return\n"
           "        current=\n"
           "    fi\n"
           "    if [[ ! $kind ]]; then\n"
           "        if [[ $current == -* && ! $only_operands ]]; then\n"
           "            _%s_options \"$command:\"\n"
           "        else\n"
           "            _%s_operand \"$command:$place\"\n"
           "        fi\n"
           "    fi\n"
           "    _%s_reply \"$current\"\n"
           "}\n\n"
           "complete -F _%s %s\n",
           name, name, name, name, name, exo_program()->name);
}

static void
print_bash(void)
{
    const char *name = function_name();
    bash_tables(name);
    bash_reply(name);
    printf("_%s() {\n"
           "    local kind='' command='' place=1 only_operands='' word i=1 "
           "current=${COMP_WORDS[COMP_CWORD]}\n"
           "    COMPREPLY=()\n",
           name);
    bash_commands(name);
    bash_place(name);
}

/* --- zsh -------------------------------------------------------------------------------------- */

/* Prints "MESSAGE:ACTION" for use within single quotes. */
static void
zsh_value(const exo_arg *arg)
{
    const char *registry = registry_of(arg->word);
    print_quoted(arg->word == EXO_WORD_FIXED ? "word" : arg->value, "'\\''", ":\\[]");
    putchar(':');
    if (registry && arg->word == EXO_WORD_DATA) {
        printf("{_%s_list %s; _files}", function_name(), registry);
    } else if (registry) {
        printf("_%s_list %s", function_name(), registry);
    } else if (arg->word == EXO_WORD_FIXED || arg->word == EXO_WORD_COMMAND) {
        putchar('(');
        print_words(arg);
        putchar(')');
    } else {
        fputs(arg->word == EXO_WORD_FILE     ? "_files"
              : arg->word == EXO_WORD_FOLDER ? "_files -/"
                                             : " ",
              stdout);
    }
}

/* Prints the command's arguments in the form of _arguments. */
static void
zsh_arguments(const exo_command *command)
{
    const exo_arg *arg;
    for (size_t i = 0; (arg = exo_option_at(command, i)); i++) {
        const char *equals = arg->value ? "=" : "";
        fputs(" \\\n            ", stdout);
        if (arg->brief)
            printf("'(%s %s)'{%s,%s%s}'[", arg->brief, arg->name, arg->brief, arg->name, equals);
        else
            printf("'%s%s%s[", arg->kind == EXO_ARG_LIST ? "*" : "", arg->name, equals);
        print_quoted(arg->help, "'\\''", ":\\[]");
        putchar(']');
        if (arg->value) {
            putchar(':');
            zsh_value(arg);
        }
        putchar('\'');
    }
    for (size_t i = 0; (arg = exo_operand_at(command, i)); i++) {
        fputs(" \\\n            '", stdout);
        if (arg->kind == EXO_ARG_LIST)
            putchar('*');
        else
            printf("%zu", i + 1);
        putchar(':');
        if (!arg->required)
            putchar(':');
        zsh_value(arg);
        putchar('\'');
    }
    putchar('\n');
}

static void
zsh_case(const exo_command *command)
{
    printf("        %s)\n            _arguments -s", command->name);
    zsh_arguments(command);
    puts("            ;;");
}

static void
print_zsh(void)
{
    const char *name = function_name();
    printf("#compdef %s\n# Completes the arguments of %s in zsh.\n\n"
           "_%s_list() {\n"
           "    # _arguments puts what is for compadd before our own word.\n"
           "    local -a names=(${(f)\"$(exogym list $argv[-1] 2>/dev/null | cut -d' ' -f1)\"})\n"
           "    compadd \"${(@)argv[1,-2]}\" -a names\n"
           "}\n\n"
           "_%s() {\n",
           exo_program()->name, exo_program()->name, name, name);
    if (!exo_program()->commands) {
        fputs("    _arguments -s", stdout);
        zsh_arguments(exo_program());
    } else {
        fputs("    local curcontext=$curcontext state\n"
              "    local -a commands=(\n",
              stdout);
        for (const exo_command *const *c = exo_program()->commands; *c; c++) {
            printf("        '%s:", (*c)->name);
            print_quoted((*c)->summary, "'\\''", "");
            puts("'");
        }
        fputs("    )\n"
              "    _arguments -C '1:command:->command' '*::argument:->argument'",
              stdout);
        zsh_arguments(exo_program());
        fputs("    case $state in\n"
              "    command) _describe command commands ;;\n"
              "    argument)\n"
              "        case $words[1] in\n",
              stdout);
        each_command(zsh_case);
        fputs("        esac\n"
              "        ;;\n"
              "    esac\n",
              stdout);
    }
    /* Autoloaded from a folder of $fpath, the file is the body of the function itself. Read with
     * `source`, it only registers the function. */
    printf("}\n\n"
           "if [[ $funcstack[1] == _%s ]]; then\n"
           "    _%s \"$@\"\n"
           "else\n"
           "    compdef _%s %s\n"
           "fi\n",
           exo_program()->name, name, name, exo_program()->name);
}

/* --- fish ------------------------------------------------------------------------------------- */

/* Prints the completions of an option or operand: "-f", "-x -a '...'" or "-F". */
static void
fish_value(const exo_arg *arg)
{
    const char *registry = registry_of(arg->word);
    if (registry) {
        printf(" %s -a '(exogym list %s 2>/dev/null | string replace -r \" .*\" \"\")'",
               arg->word == EXO_WORD_DATA ? "-F" : "-x", registry);
    } else if (arg->word == EXO_WORD_FIXED || arg->word == EXO_WORD_COMMAND) {
        fputs(" -x -a '", stdout);
        print_words(arg);
        putchar('\'');
    } else if (arg->word == EXO_WORD_FOLDER) {
        fputs(" -x -a '(__fish_complete_directories)'", stdout);
    } else {
        fputs(arg->word != EXO_WORD_FILE ? " -x" : arg->name ? " -r -F" : " -F", stdout);
    }
}

static void
fish_help(const char *text)
{
    fputs(" -d '", stdout);
    print_quoted(text, "\\'", "\\");
    fputs("'\n", stdout);
}

static void
fish_command(const exo_command *command)
{
    const exo_arg *arg;
    const char *name = function_name();
    char in[128] = "";
    if (command != exo_program())
        snprintf(in, sizeof in, " -n '__%s_in %s'", name, command->name);
    for (size_t i = 0; (arg = exo_option_at(command, i)); i++) {
        printf("complete -c %s%s -l %s", exo_program()->name, in, arg->name + 2);
        if (arg->brief)
            printf(" -s %s", arg->brief + 1);
        if (arg->value)
            fish_value(arg);
        fish_help(arg->help);
    }
    for (size_t i = 0; (arg = exo_operand_at(command, i)); i++) {
        if (arg->word == EXO_WORD_TEXT)
            continue;
        printf("complete -c %s -n '__%s_at %zu %s", exo_program()->name, name, i + 1,
               arg->kind == EXO_ARG_LIST ? "more" : "one");
        if (command != exo_program())
            printf(" %s", command->name);
        putchar('\'');
        fish_value(arg);
        putchar('\n');
    }
}

static void
fish_valued(const exo_command *command)
{
    const exo_arg *arg;
    for (size_t i = 0; (arg = exo_option_at(command, i)); i++) {
        if (!arg->value)
            continue;
        printf(" %s:%s", label(command), arg->name);
        if (arg->brief)
            printf(" %s:%s", label(command), arg->brief);
    }
}

static void
print_fish(void)
{
    const char *name = function_name();
    printf("# Completes the arguments of %s in fish.\n\n"
           "# Whether the command is $argv[1]; without it, whether there is none yet.\n"
           "function __%s_in\n"
           "    set -l words (commandline -opc)\n"
           "    if test (count $argv) = 0\n"
           "        test (count $words) = 1\n"
           "    else\n"
           "        test (count $words) -gt 1; and test $words[2] = $argv[1]\n"
           "    end\n"
           "end\n\n"
           "# Whether operand $argv[1] of the command $argv[3] comes next, or one after it if "
           "$argv[2] is more.\n"
           "function __%s_at\n"
           "    set -l words (commandline -opc)[2..-1]\n"
           "    if set -q argv[3]\n"
           "        test \"$words[1]\" = $argv[3]; or return 1\n"
           "        set -e words[1]\n"
           "    end\n"
           "    set -l place 1\n"
           "    set -l value no\n"
           "    for word in $words\n"
           "        if test $value = yes\n"
           "            set value no\n"
           "        else if string match -q -- '-?*' $word\n"
           "            contains -- \"$argv[3]:$word\"",
           exo_program()->name, name, name);
    each_command(fish_valued);
    printf("; and set value yes\n"
           "        else\n"
           "            set place (math $place + 1)\n"
           "        end\n"
           "    end\n"
           "    test $place = $argv[1]; or test $argv[2] = more -a $place -gt $argv[1]\n"
           "end\n\n"
           "complete -c %s -f\n",
           exo_program()->name);
    for (const exo_command *const *c = exo_program()->commands; c && *c; c++) {
        printf("complete -c %s -n __%s_in -a %s", exo_program()->name, name, (*c)->name);
        fish_help((*c)->summary);
    }
    if (exo_program()->commands)
        for (size_t i = 0; exo_option_at(exo_program(), i); i++) {
            printf("complete -c %s -n __%s_in -l %s", exo_program()->name, name,
                   exo_option_at(exo_program(), i)->name + 2);
            fish_help(exo_option_at(exo_program(), i)->help);
        }
    each_command(fish_command);
}

void
exo_completion_print(const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        print_bash();
    else if (strcmp(shell, "zsh") == 0)
        print_zsh();
    else
        print_fish();
}
