/* Lives of a channel's two actors, for spin: docs/channels.md, "Lives", says in prose what this says exactly. channel.pml has the channel
 * itself; here it is as simple as lives allow: one item in the outbox, and no loans.
 *
 * A sender S sends ITEMS items in each of its lives and ends. A receiver R takes them and ends when its port is closed. Either may be
 * killed at any moment, DEATHS times altogether. The runner gives another life to an actor whose run was not answered: it makes the life,
 * tells the other actor, and then lets it run. All its steps are apart, and deaths come between them.
 *
 * A run must come to its end in every order; the assertions say what must hold meanwhile. run.sh has the settings that are checked.
 */

#ifndef ITEMS
#define ITEMS 2
#endif
#ifndef CAPACITY
#define CAPACITY 1
#endif
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef WRONG
#define WRONG 0                 /* 1: messages do not name lives; 2: a life runs before the other actor is told; 3: nobody is told that an
                                 * actor had ended well */
#endif

#define S 0
#define R 1
#define OTHER(x) (1 - (x))

#define DATA 1
#define END  2
#define CREDIT 3
#define GONE 4

#define MOST_LIVES (DEATHS + 1)
#define WIRE ((DEATHS + 1) * (ITEMS + CAPACITY + 2))

/* Actors. */
bit alive[2], runs[2], over[2];     /* over: its run has returned, and everything has left */
bit answered[2];                    /* the runner knows that */
bit unreached[2];                   /* it was dead or over when it should have been told */
byte life[2], knows[2];             /* its life; that of the other one, as far as it knows */
byte deaths;

/* The sender's end. */
byte sent, credits;
bit outbox, returned, said_end, heard_gone;
byte number;                        /* of the item in the outbox */

/* The receiver's end. */
chan buffer = [(DEATHS + 1) * CAPACITY] of {byte, byte};   /* life, number; each life of the sender begins with all credits */
byte out, expected;
bit ended, gone, lost;              /* lost: what still comes is ignored */
byte taken[MOST_LIVES];             /* of each life of the sender: the items before it are taken or lost */

chan wire = [WIRE] of {byte, byte, byte, byte};     /* kind, number, life of the sender, of the receiver */
chan back = [WIRE] of {byte, byte, byte};           /* kind, life of the receiver, of the sender */

#define TIMELY(x, theirs, mine) (WRONG == 1 || ((theirs) == knows[x] && (mine) == life[x]))

/* --- The ends ---------------------------------------------------------------------------------------------------------------------- */

inline open_sender(closed)          /* to another life of the receiver */
{
    credits = CAPACITY;
    said_end = closed;
    heard_gone = closed;
    if
    :: closed -> outbox = 0
    :: else
    fi
}

inline open_receiver()              /* to another life of the sender: what has arrived stays */
{
    out = CAPACITY;
    expected = 0;
    ended = 0;
    gone = 0;
    lost = 0
}

inline lose(x)                      /* the other actor had ended well: nothing comes, nothing is taken */
{
    if
    :: x == S -> open_sender(1)
    :: x == R && !ended -> ended = 1; lost = 1
    :: else
    fi
}

proctype Sender()
{
    byte kind, theirs, mine;
end:
    do
    :: atomic { alive[S] && runs[S] && !returned && sent < ITEMS && !outbox && !heard_gone -> outbox = 1; number = sent; sent++ }
    :: atomic { alive[S] && outbox && credits > 0 && !heard_gone -> credits--; outbox = 0; wire!DATA, number, life[S], knows[S] }
    :: atomic { alive[S] && runs[S] && !returned && (sent == ITEMS || heard_gone) -> returned = 1 }
    :: atomic { alive[S] && returned && !outbox && !said_end -> said_end = 1; wire!END, 0, life[S], knows[S] }
    :: atomic { alive[S] && returned && !outbox && said_end && !over[S] -> over[S] = 1 }
    :: atomic {
        alive[S] && nempty(back) -> back?kind, theirs, mine;
        if
        :: TIMELY(S, theirs, mine) && kind == CREDIT -> credits++; assert(credits <= CAPACITY)
        :: TIMELY(S, theirs, mine) && kind == GONE -> heard_gone = 1; outbox = 0
        :: else
        fi;
        kind = 0; theirs = 0; mine = 0
    }
    od
}

proctype Receiver()
{
    byte kind, n, theirs, mine;
end:
    do
    :: atomic {
        alive[R] && nempty(wire) -> wire?kind, n, theirs, mine;
        if
        :: lost || !TIMELY(R, theirs, mine)
        :: else ->
            if
            :: kind == DATA && !over[R] ->
                assert(!ended && n >= expected && out > 0);
                expected = n + 1;
                out--;
                assert(nfull(buffer));
                buffer!theirs, n
            :: kind == END && !over[R] -> ended = 1
            :: else
            fi
        fi;
        kind = 0; n = 0; theirs = 0; mine = 0
    }
    :: atomic { alive[R] && !ended && !gone && !over[R] && CAPACITY > out + len(buffer) -> out++; back!CREDIT, life[R], knows[R] }
    :: atomic {
        alive[R] && runs[R] && !over[R] && nempty(buffer) -> buffer?theirs, n;
        assert(n >= taken[theirs]);   /* at most once, and in their order */
        taken[theirs] = n + 1;
        n = 0; theirs = 0
    }
    :: atomic { alive[R] && runs[R] && !over[R] && ended && empty(buffer) -> gone = 1; over[R] = 1; back!GONE, life[R], knows[R] }
    od
}

/* --- The runner -------------------------------------------------------------------------------------------------------------------- */

inline kill(x)
{
    deaths++;
    alive[x] = 0;
    if
    :: over[x] -> answered[x] = 1   /* the answer was on its way */
    :: !answered[x]                 /* or is lost */
    fi
}

inline make(x)
{
    life[x]++;
    knows[x] = life[OTHER(x)];
    unreached[x] = 0;
    runs[x] = 0;
    over[x] = 0;
    if
    :: x == S -> sent = 0; outbox = 0; number = 0; returned = 0; open_sender(0)
    :: x == R ->
        do
        :: len(buffer) > 0 -> buffer?_, _
        :: else -> break
        od;
        open_receiver()
    fi;
    if
    :: answered[OTHER(x)] && WRONG != 3 -> lose(x)
    :: else
    fi;
    alive[x] = 1
}

inline tell(y)                      /* of the other one's new life */
{
    if
    :: alive[y] && !over[y] ->
        knows[y] = life[OTHER(y)];
        if
        :: y == S -> open_sender(0)
        :: y == R -> open_receiver()
        fi
    :: else -> unreached[y] = 1
    fi
}

/* An actor that has ended well could not be told of the other's new life. */
#define MUST_TELL(x) (WRONG != 3 && alive[x] && unreached[OTHER(x)] && answered[OTHER(x)] && !told[x])

proctype Runner()
{
    byte x;
    bit told[2];
    do
    :: atomic { deaths < DEATHS && alive[S] -> kill(S) }
    :: atomic { deaths < DEATHS && alive[R] -> kill(R) }
    :: atomic { over[S] && alive[S] && !answered[S] -> answered[S] = 1 }
    :: atomic { over[R] && alive[R] && !answered[R] -> answered[R] = 1 }
    :: atomic { MUST_TELL(S) -> told[S] = 1; lose(S) }
    :: atomic { MUST_TELL(R) -> told[R] = 1; lose(R) }
    :: atomic { (!alive[S] && !answered[S]) || (!alive[R] && !answered[R]) ->
        if
        :: !alive[S] && !answered[S] -> x = S
        :: !alive[R] && !answered[R] -> x = R
        fi;
        told[x] = 0;
        told[OTHER(x)] = 0;
        make(x)
       };
       if
       :: atomic { WRONG == 2 && alive[x] -> runs[x] = 1 }
       :: atomic { deaths < DEATHS && alive[x] -> kill(x) }
       :: atomic { deaths < DEATHS && alive[OTHER(x)] -> kill(OTHER(x)) }
       :: true
       fi;
       atomic { tell(OTHER(x)) };
       if
       :: atomic { deaths < DEATHS && alive[x] -> kill(x) }
       :: atomic { deaths < DEATHS && alive[OTHER(x)] -> kill(OTHER(x)) }
       :: true
       fi;
       if
       :: atomic { MUST_TELL(x) -> told[x] = 1; lose(x) }
       :: else
       fi;
       atomic {
        if
        :: alive[x] -> runs[x] = 1
        :: else
        fi;
        x = 0
       }
    :: answered[S] && answered[R] -> break
    od
}

init
{
    atomic {
        alive[S] = 1; alive[R] = 1;
        runs[S] = 1; runs[R] = 1;
        credits = CAPACITY;
        out = CAPACITY;
        run Sender(); run Receiver(); run Runner()
    }
}
