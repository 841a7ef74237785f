/* A command's help, made from its table in two formats: plain text for a terminal, and man(7)
 * source. Both have the same sections (print_sections). A `look` holds the functions that print a
 * title, paragraphs and a row in one format. No state. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "programs/program.h"

enum {
    WIDTH = 80,   /* of plain text */
    COLUMN = 22,  /* column of a row's text */
    MAX_LINE = 60 /* of a manual page's source, approximately */
};

/* The term of a row: "-o, --output FILE". */
struct term {
    const char *brief, *name, *value, *words;
};

struct look {
    void (*title)(const char *text);
    void (*paragraphs)(const char *text);
    void (*row)(struct term term, const char *text);
};

/* --- Plain text ------------------------------------------------------------------------------- */

/* Prints the words of `text`, starting in column `at` and wrapped at WIDTH with `indent` spaces.
 * Keeps empty lines. Ends the line. */
static void
print_wrapped(const char *text, int at, int indent)
{
    bool first = true;
    while (*text) {
        size_t spaces = strspn(text, " \n"), length = strcspn(text + spaces, " \n");
        bool paragraph = spaces > 1 && memchr(text, '\n', spaces);
        text += spaces;
        if (paragraph || (!first && at + 1 + (int)length > WIDTH)) {
            printf("%s%*s", paragraph ? "\n\n" : "\n", indent, "");
            at = indent;
            first = true;
        }
        printf("%s%.*s", first ? "" : " ", (int)length, text);
        at += (int)length + !first;
        first = false;
        text += length;
    }
    putchar('\n');
}

static void
text_title(const char *text)
{
    printf("\n%s:\n", text);
}

static void
text_paragraphs(const char *text)
{
    print_wrapped(text, 0, 0);
}

/* Prints a value, starting in column `at`. A list of choices that is too long for the line
 * continues in the next line at `indent`. Returns the column after it. */
static int
print_value(const char *value, int at, int indent)
{
    while (at + (int)strlen(value) > WIDTH && strchr(value, '|')) {
        size_t length = 0, next;
        while ((next = strcspn(value + length, "|")) < strlen(value + length) &&
               at + (int)(length + next + 1) <= WIDTH)
            length += next + 1;
        if (length == 0)
            break;
        printf("%.*s\n%*s", (int)length, value, indent, "");
        at = indent;
        value += length;
    }
    return at + printf("%s", value);
}

static void
text_row(struct term term, const char *text)
{
    int used = printf("  %s%s%s%s", term.brief ? term.brief : "", term.brief ? ", " : "",
                      term.name ? term.name : "", term.name && term.value ? " " : "");
    used = term.value ? print_value(term.value, used, 2) : used;
    if (term.words)
        used += printf("[=%s]", term.words);
    if (used + 2 > COLUMN)
        printf("\n%*s", COLUMN, "");
    else
        printf("%*s", COLUMN - used, "");
    print_wrapped(text, COLUMN, COLUMN);
}

static const struct look text_look = {text_title, text_paragraphs, text_row};

/* --- man(7) ----------------------------------------------------------------------------------- */

/* Prints `text` so that troff shows it unchanged: minus signs that can be pasted, straight quotes,
 * no escapes, no control lines. Each sentence starts a line, as troff expects. `start`: the text
 * stands at the beginning of a line. */
static void
print_escaped(const char *text, bool start)
{
    for (const char *c = text, *line = text; *c; c++) {
        if (start)
            line = c;
        if (start && *c == '.')
            fputs("\\&", stdout);
        start = false;
        switch (*c) {
        case '\\':
            fputs("\\e", stdout);
            break;
        case '-':
            fputs("\\-", stdout);
            break;
        case '\'':
            fputs("\\(aq", stdout);
            break;
        case '`':
            fputs("\\(ga", stdout);
            break;
        case '"':
            fputs("\\(dq", stdout);
            break;
        case '^':
            fputs("\\(ha", stdout);
            break;
        case '~':
            fputs("\\(ti", stdout);
            break;
        case '|':
            fputs("|\\:", stdout); /* a line may break here */
            if (c - line > MAX_LINE / 2) {
                /* "\\\n" continues the line, so that troff sees no break here */
                fputs("\\\n", stdout);
                line = c + 1;
            }
            break;
        case '\n':
            start = c[1] == '\n'; /* an empty line starts the next paragraph */
            fputs(start ? "\n.PP\n" : " ", stdout);
            c += start;
            break;
        case ' ':
            start =
                c > text && ((c[-1] == '.' && isupper((unsigned char)c[1])) || c - line > MAX_LINE);
            putchar(start ? '\n' : ' ');
            break;
        default:
            putchar(*c);
        }
    }
}

static void
man_title(const char *text)
{
    fputs(".SH ", stdout);
    for (; *text; text++)
        putchar(toupper((unsigned char)*text));
    putchar('\n');
}

static void
man_paragraphs(const char *text)
{
    print_escaped(text, true);
    putchar('\n');
}

static void
print_in_font(char font, const char *text)
{
    printf("\\f%c", font);
    print_escaped(text, false);
    fputs("\\fR", stdout);
}

static void
man_term(struct term term)
{
    if (term.brief) {
        print_in_font('B', term.brief);
        fputs(", ", stdout);
    }
    if (term.name)
        print_in_font('B', term.name);
    if (term.name && term.value)
        putchar(' ');
    if (term.value)
        print_in_font('I', term.value);
    if (term.words)
        printf("[=%s]", term.words);
}

static void
man_row(struct term term, const char *text)
{
    fputs(".TP\n", stdout);
    man_term(term);
    putchar('\n');
    man_paragraphs(text);
}

static const struct look man_look = {man_title, man_paragraphs, man_row};

/* --- Both formats ----------------------------------------------------------------------------- */

static struct term
term_of(const exo_arg *arg)
{
    return (struct term){
        .brief = arg->brief, .name = arg->name, .value = arg->value, .words = arg->words};
}

static void
print_notes(const struct look *look, const char *title, const exo_note *notes, bool literal)
{
    if (notes)
        look->title(title);
    for (; notes && notes->term; notes++)
        look->row(literal ? (struct term){.name = notes->term}
                          : (struct term){.value = notes->term},
                  notes->text);
}

static void
print_sections(const struct look *look, const exo_command *command)
{
    const exo_arg *arg;
    if (command->commands)
        look->title("Commands");
    for (const exo_command *const *c = command->commands; c && *c; c++)
        look->row((struct term){.name = (*c)->name}, (*c)->summary);
    if (exo_operand_at(command, 0))
        look->title("Arguments");
    for (size_t i = 0; (arg = exo_operand_at(command, i)); i++)
        look->row(term_of(arg), arg->help);
    look->title("Options");
    for (size_t i = 0; (arg = exo_option_at(command, i)); i++)
        look->row(term_of(arg), arg->help);
    print_notes(look, "Examples", command->examples, true);
    print_notes(look, "Files", command->files, false);
    print_notes(look, "Environment", command->environment, true);
    print_notes(look, "Exit status", command->exits ? command->exits : exo_exits, true);
}

/* --- The pages -------------------------------------------------------------------------------- */

/* Prints one operand of the usage line, starting in column `at`. A long list of choices continues
 * in the next line. Returns the column after it. */
static int
print_operand(const exo_arg *arg, int at)
{
    at += printf(arg->required ? " " : " [");
    at = print_value(arg->value, at, (int)strlen("Usage: "));
    return at + printf("%s%s", arg->required ? "" : "]", arg->kind == EXO_ARG_LIST ? "..." : "");
}

void
exo_page_print_text(const exo_command *command)
{
    const exo_command *program = exo_program();
    const exo_arg *arg;
    printf("%s.\n\n", command->summary);
    int at = printf("Usage: %s%s%s", program->name, command == program ? "" : " ",
                    command == program ? "" : command->name);
    if (command->commands)
        fputs(" COMMAND [ARGUMENTS]", stdout);
    for (size_t i = 0; (arg = exo_operand_at(command, i)); i++)
        at = print_operand(arg, at);
    for (size_t i = 0; (arg = exo_option_at(command, i)); i++)
        if (arg->required)
            printf(" %s %s", arg->brief ? arg->brief : arg->name, arg->value);
    fputs(command->commands ? "\n\n" : " [OPTIONS]\n\n", stdout);
    text_paragraphs(command->description);
    print_sections(&text_look, command);
}

/* Prints one argument of the synopsis, without a line break inside. */
static void
man_synopsis(const exo_arg *arg)
{
    fputs(arg->required ? "" : "[", stdout);
    if (arg->name)
        print_in_font('B', arg->brief ? arg->brief : arg->name);
    if (arg->name && arg->value)
        fputs("\\ ", stdout);
    if (arg->value)
        print_in_font('I', arg->value);
    if (arg->words)
        printf("[=%s]", arg->words);
    fputs(arg->required ? "" : "]", stdout);
    /* \& keeps troff from taking "..." for the end of a sentence */
    fputs(arg->kind == EXO_ARG_LIST ? "...\\&\n" : "\n", stdout);
}

/* Prints "exogym-run", in small letters or in capitals. */
static void
man_page_name(const exo_command *command, bool capitals)
{
    const char *parts[] = {exo_program()->name, command == exo_program() ? "" : "-",
                           command == exo_program() ? "" : command->name};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (const char *c = parts[i]; *c; c++)
            if (*c == '-')
                fputs("\\-", stdout);
            else
                putchar(capitals ? toupper((unsigned char)*c) : *c);
}

static void
man_refer(const exo_command *command, const char *end)
{
    fputs("\\fB", stdout);
    man_page_name(command, false);
    printf("\\fR(1)%s\n", end);
}

void
exo_page_print_man(const exo_command *command)
{
    const exo_command *program = exo_program();
    const exo_arg *arg;
    fputs(".TH \"", stdout);
    man_page_name(command, true);
    printf("\" 1 \"\" \"%s " EXO_VERSION "\" \"User Commands\"\n.nh\n.ad l\n", program->name);
    man_title("Name");
    man_page_name(command, false);
    fputs(" \\- ", stdout);
    putchar(tolower((unsigned char)command->summary[0]));
    man_paragraphs(command->summary + 1);

    man_title("Synopsis");
    print_in_font('B', program->name);
    putchar('\n');
    if (command != program) {
        print_in_font('B', command->name);
        putchar('\n');
    }
    if (command->commands)
        puts("\\fICOMMAND\\fR\n[\\fIARGUMENTS\\fR]");
    for (size_t i = 0; (arg = exo_operand_at(command, i)); i++)
        man_synopsis(arg);
    for (size_t i = 0; (arg = exo_option_at(command, i)); i++)
        if (!command->commands)
            man_synopsis(arg);

    man_title("Description");
    man_paragraphs(command->description);
    print_sections(&man_look, command);
    if (!program->commands)
        return;
    man_title("See also");
    if (command != program)
        man_refer(program, "");
    for (const exo_command *const *c = program->commands; command == program && *c; c++)
        man_refer(*c, c[1] ? "," : "");
}
