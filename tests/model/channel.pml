/* The protocol of a graph's channels, for spin. docs/channels.md says in prose what this says exactly, and which rules follow.
 *
 * M makers and N trainers. Experience goes from every maker to every trainer; with PARAMETERS, parameters go from every trainer to every
 * maker. There is one channel for each pair:
 *
 *     actor --send--> outbox --DATA--> wire --> buffer --take--> actor
 *                       ^ credits <-------------- CREDIT, GONE
 *
 * What happens at another time than it is said (on a wire, in a thread of the runtime) is a step of the channel's own process, so that spin
 * tries every order. An actor does one step at a time. A run must come to its end in every order: spin reports an "invalid end state" if
 * any process waits for ever, and the assertions say what must hold meanwhile. run.sh has the settings that are checked.
 *
 * Read first: the settings, the two ends of a channel, `proctype Channel`. Then the actors, the faults, and `graph apply` last.
 */

/* --- Settings: spin -DNAME=VALUE ------------------------------------------------------------------------------------------------ */

#ifndef M
#define M 1                     /* makers */
#endif
#ifndef N
#define N 1                     /* trainers */
#endif
#ifndef PARAMETERS
#define PARAMETERS 1            /* 0: nothing flows back */
#endif
#ifndef CAPACITY
#define CAPACITY 1              /* of a buffer of experience */
#endif
#ifndef PAR_CAPACITY
#define PAR_CAPACITY CAPACITY   /* of a buffer of parameters */
#endif
#ifndef OUTBOX
#define OUTBOX 1                /* items that a sender holds besides the one that it transmits */
#endif
#ifndef UPDATES
#define UPDATES 2               /* a trainer ends after so many; 0: when its port is CLOSED */
#endif
#ifndef BATCH
#define BATCH 1                 /* items of experience for one update */
#endif
#ifndef ITEMS
#define ITEMS 0                 /* a maker ends after so many; 0: when its port is CLOSED */
#endif
#ifndef WAIT
#define WAIT 0                  /* 1: a maker waits for parameters before each item; 0: it takes what is there */
#endif
#ifndef ALL_REDUCE
#define ALL_REDUCE 0            /* 1: trainers wait for each other in each update */
#endif
#ifndef FINALLY
#define FINALLY 0               /* 1: a trainer that is done tells so: its GONE comes after its outputs are sent (wrong) */
#endif

/* The order of exo_route and exo_on_full in runtime/graph/spec.h, of those that differ here. */
#define ROUND_ROBIN  0
#define LEAST_LOADED 1
#define ANY          2          /* `hash` and the like: whichever the key says */
#ifndef ROUTE
#define ROUTE ROUND_ROBIN       /* of experience; parameters are broadcast */
#endif
#define BLOCK       0
#define DROP_OLDEST 1           /* and `latest`, which has PAR_CAPACITY 1 */
#define DROP_NEWEST 2           /* and `fail`, which says so */
#ifndef EXP_FULL
#define EXP_FULL BLOCK
#endif
#ifndef PAR_FULL
#define PAR_FULL BLOCK
#endif

/* What a receiver does for a sender while its actor waits in the runtime: the rule against deadlock.
 *   0  nothing (wrong)
 *   1  on feedback edges (here: parameters) it keeps one credit out, always
 *   2  as 1, but at most LOANS times a wait (wrong) */
#ifndef RULE
#define RULE 1
#endif
#ifndef LOANS
#define LOANS 1
#endif
/* CREDITs that a receiver may hold back to send them as one message: none that matters while the sender has a credit left. */
#ifndef HOLD_BACK
#define HOLD_BACK 1             /* so many are collected; 1: each is sent at once */
#endif
#ifndef HOLD_BLINDLY
#define HOLD_BLINDLY 0          /* 1: whether the sender has a credit or not (wrong) */
#endif
#ifndef FAULT
#define FAULT 0                 /* 1: one actor crashes at any moment, or none; 2: the run is cancelled; 3: either */
#endif
#ifndef TOLERATE
#define TOLERATE 0              /* 1: who hears PEER_LOST goes on with those that are left; 0: it ends */
#endif
#ifndef SILENT
#define SILENT 0                /* 1: nobody is told of a crash (wrong) */
#endif
#ifndef NUMBERS
#define NUMBERS 0               /* 1: items have numbers, which are checked: more states */
#endif
#ifndef AT_ONCE
#define AT_ONCE 0               /* 1: experience, 2: parameters, 3: both travel in no time: fewer states, for larger graphs */
#endif
#ifndef IN_ORDER
#define IN_ORDER 0              /* 1: trainers take in the order of arrival, as the runtime does; 0: in any order */
#endif
#ifndef BOUND
#define BOUND 255               /* of buffers, with loans: for experiments */
#endif
/* `graph apply`: 1 changes capacity and codec of the first channel, adds the last channel and removes the first, in every order that
 * the rules allow. Wrong: 2 removes before it adds, 3 switches the codec before the receiver knows it, 4 opens the sender first, 5 drops
 * the outbox of what it removes. */
#ifndef APPLY
#define APPLY 0
#endif

/* --- Who is at which end --------------------------------------------------------------------------------------------------------- */

#define ACTORS (M + N)          /* makers 0 .. M - 1, then trainers */
#define EXPERIENCES (M * N)
#if PARAMETERS
#define CHANNELS (2 * M * N)
#else
#define CHANNELS (M * N)
#endif
#define EXP(maker, trainer) ((maker) * N + (trainer))
#define PAR(trainer, maker) (EXPERIENCES + (trainer) * M + (maker))

#define IS_PAR(c)   ((c) >= EXPERIENCES)
#define SENDER(c)   (IS_PAR(c) -> M + ((c) - EXPERIENCES) / M : (c) / N)
#define RECEIVER(c) (IS_PAR(c) -> ((c) - EXPERIENCES) % M : M + (c) % N)
#define AT(c)       ((AT_ONCE & (IS_PAR(c) -> 2 : 1)) != 0)
#define FULL(c)     (IS_PAR(c) -> PAR_FULL : EXP_FULL)
#define HOLDS(c)    (IS_PAR(c) -> PAR_CAPACITY : CAPACITY)

/* --- A channel: what its two ends know --------------------------------------------------------------------------------------------- */

/* What a message of the wire is. CREDIT, GONE go the other way and overtake nothing that matters: they are kept as counts and marks. */
#define DATA 1
#define END  2

/* Loans come on top of the capacity; a trainer sends no more than this many parameters altogether. */
#define ROOM (CAPACITY + PAR_CAPACITY + UPDATES + 2)
#if NUMBERS
#define NEXT(n) ((n + 1) % 32)
#else
#define NEXT(n) 0
#endif

/* The sender's end. */
chan outbox[CHANNELS] = [OUTBOX] of {byte};
#define WIRE (CAPACITY + PAR_CAPACITY)
chan wire[CHANNELS] = [WIRE + 1] of {byte, byte, bit}; /* kind, number, epoch */
byte credits[CHANNELS];     /* DATA that it may still send                                          */
byte sent[CHANNELS];        /* the next item's number                                               */
byte ending[CHANNELS];      /* 1: nothing more is put in; 2: END was sent, the last of its messages */
bit s_open[CHANNELS];
bit s_epoch[CHANNELS];      /* of the codec that it encodes with */

/* The receiver's end. */
chan buffer[CHANNELS] = [ROOM] of {byte};
byte out[CHANNELS];         /* credits granted for which no DATA has arrived: `HOLDS - out - len(buffer)` are owed */
byte returning[CHANNELS];   /* of those, CREDIT on its way                                                         */
byte next[CHANNELS];        /* the number that comes next                                                          */
bit ended[CHANNELS];        /* END has arrived                                                                     */
byte gone[CHANNELS];        /* 1: GONE was sent, the last of its messages; 2: it has arrived at the sender         */
bit lost[CHANNELS];         /* whoever is at the other end has crashed                                             */
byte loans[CHANNELS];       /* RULE 2                                                                              */
bit r_open[CHANNELS];
byte known[CHANNELS];       /* a bit for each epoch that it can decode */
byte capacity[CHANNELS];

#if IN_ORDER
chan order[N] = [M * (CAPACITY + 1)] of {byte}; /* channels of what is in a trainer's buffers */
#endif

/* Actors. */
bit waiting[ACTORS];        /* in the runtime: in a send, for room */
bit crashed[ACTORS];
bit over[ACTORS];           /* its `run` has returned */
bit cancelled;
byte joined;                /* trainers in the collective */
bit round;
bit applied;                /* APPLY: all of it is done */

/* Whoever may still be sent to. */
#define TAKES(c) (s_open[c] && ending[c] == 0 && gone[c] != 2)
#define WITH_CREDITS(c) (FULL(c) != DROP_OLDEST)

/* The receiver's decision, the whole of it: is there a CREDIT to send?
 * Owed is what the buffer has room for; a change of capacity needs nothing else. Held back only while the sender has one left. */
#define OWED(c) (capacity[c] > out[c] + len(buffer[c]) && \
    (capacity[c] - out[c] - len(buffer[c]) >= HOLD_BACK || (out[c] == 0 && !HOLD_BLINDLY)))
#define LOAN(c) (RULE > 0 && IS_PAR(c) && waiting[RECEIVER(c)] && out[c] == 0 && (RULE != 2 || loans[c] < LOANS))

#define SENDS(c)  (s_open[c] && !crashed[SENDER(c)])
#define HEARS(c)  (r_open[c] && !crashed[RECEIVER(c)])

#define CAN_TRANSMIT(c) (SENDS(c) && len(outbox[c]) > 0 && gone[c] != 2 && len(wire[c]) < WIRE && (credits[c] > 0 || !WITH_CREDITS(c)))
#define CAN_GRANT(c)    (HEARS(c) && WITH_CREDITS(c) && gone[c] == 0 && !ended[c] && (OWED(c) || LOAN(c)))
#define CAN_END(c)      (SENDS(c) && ending[c] != 2 && (ending[c] == 1 || gone[c] == 2) && len(outbox[c]) == 0)
#define CAN_GO(c)       (HEARS(c) && ended[c] && len(buffer[c]) == 0 && gone[c] == 0)

/* An item leaves the outbox with a credit, and is encoded with the codec of that moment. */
inline transmit(c)
{
    outbox[c]?n;
    if
    :: WITH_CREDITS(c) -> credits[c]--
    :: else
    fi;
    if
    :: AT(c) -> arrive(c, n)
    :: else -> wire[c]!DATA, n, s_epoch[c]
    fi;
    n = 0
}

/* DATA has arrived, and goes into the buffer, decoded. */
inline arrive(c, number)
{
    if
    :: WITH_CREDITS(c) -> out[c]--
    :: else
    fi;
    if
    :: gone[c] != 0 -> skip /* it was on its way when the receiver ended: it is for nobody */
    :: else ->
        if
        :: !WITH_CREDITS(c) && len(buffer[c]) >= capacity[c] -> buffer[c]?_
        :: else
        fi;
        buffer[c]!number;
#if IN_ORDER
        if
        :: !IS_PAR(c) -> order[c % N]!c
        :: else
        fi;
#endif
        /* Credits are what keeps this true; only a loan goes beyond. */
        assert(APPLY || (RULE > 0 && IS_PAR(c)) || len(buffer[c]) <= HOLDS(c));
        assert(len(buffer[c]) <= BOUND)
    fi
}

inline grant(c)
{
    if
    :: RULE == 2 && !OWED(c) -> loans[c]++
    :: else
    fi;
    out[c]++;
    if
    :: AT(c) -> credits[c]++
    :: else -> returning[c]++
    fi
}

/* END is the sender's last word, after all that was put in before. It says it once, whoever ended first. */
inline say_end(c)
{
    ending[c] = 2;
    if
    :: lost[c] -> skip
    :: else ->
        if
        :: AT(c) -> ended[c] = 1
        :: else -> wire[c]!END, 0, 0
        fi
    fi
}

/* GONE has arrived: what is in the outbox is for nobody. */
inline hear_gone(c)
{
    gone[c] = 2;
    do
    :: len(outbox[c]) > 0 -> outbox[c]?_
    :: else -> break
    od
}

/* --- What the runtime does by itself, on any thread, at any time ------------------------------------------------------------------ */

proctype Channel(byte c)
{
    byte kind, n;
    bit epoch;
    /* It may rest here for ever: whether it may end like this, init says. */
end:
    do
    :: atomic { CAN_TRANSMIT(c) -> transmit(c) }
    :: atomic { CAN_END(c) -> say_end(c) }
    :: atomic { gone[c] == 1 && SENDS(c) -> hear_gone(c) }
    :: atomic { returning[c] > 0 -> returning[c]--; credits[c]++ }
    :: atomic { CAN_GRANT(c) -> grant(c) }
    /* GONE answers END once all that came before it has been taken. Then nobody has to know the channel any more. */
    :: atomic { CAN_GO(c) -> gone[c] = 1 }
    /* A message arrives. */
    :: atomic {
        len(wire[c]) > 0 ->
        wire[c]?kind, n, epoch;
        assert(r_open[c]);
        assert(!ended[c]);
        if
        :: kind == END -> ended[c] = 1
        :: kind == DATA ->
            assert(known[c] & (1 << epoch));
            known[c] = (1 << epoch) | (known[c] & 2);   /* nothing older comes: the wire keeps the order */
            arrive(c, n)
        fi;
        kind = 0;
        n = 0;
        epoch = 0
    }
    /* Who watches the peers (the net, the supervisor) tells each end that the other has crashed, after what has arrived; of the rest
     * any part may be missing. */
    :: atomic {
        (crashed[SENDER(c)] || crashed[RECEIVER(c)]) && !lost[c] && !SILENT ->
        lost[c] = 1;
        do
        :: len(outbox[c]) > 0 -> outbox[c]?_
        :: len(wire[c]) > 0 -> wire[c]?_, _, _
        :: len(buffer[c]) > 0 && crashed[RECEIVER(c)] -> buffer[c]?_
        :: else -> break
        od;
        ended[c] = 1;
        if
        :: crashed[SENDER(c)] -> ending[c] = 2
        :: else
        fi;
        if
        :: crashed[RECEIVER(c)] || gone[c] == 1 -> gone[c] = 2
        :: else
        fi
    }
    od
}

/* AT_ONCE: all that this channel can do is done, in the step of the actor that made it possible. */
inline settle(c)
{
    if
    :: AT(c) ->
        do
        :: CAN_TRANSMIT(c) -> transmit(c)
        :: CAN_GRANT(c) -> grant(c)
        :: gone[c] == 1 && SENDS(c) -> hear_gone(c)
        :: CAN_END(c) -> say_end(c)
        :: CAN_GO(c) -> gone[c] = 1
        :: else -> break
        od
    :: else
    fi
}

/* --- What actors call -------------------------------------------------------------------------------------------------------------- */

#ifdef COUNT    /* all that was put in is taken, if nobody ends early */
byte puts[CHANNELS], takes[CHANNELS];
#define total(c) puts[c]++
#define taken(c) takes[c]++
#else
#define total(c) skip
#define taken(c) skip
#endif

inline put(c)
{
    outbox[c]!sent[c];
    sent[c] = NEXT(sent[c]);
    total(c);
    settle(c)
}

/* Waits until `room` (an expression) is true. */
inline wait_in_send(me, room)
{
    waiting[me] = 1;
    settle_inputs(me);
    (room);
    waiting[me] = 0;
    settle_inputs(me)
}

inline settle_inputs(me)
{
#if PARAMETERS && (AT_ONCE & 2 || RULE == 2)
    i = EXPERIENCES;
    do
    :: i < CHANNELS ->
        if
        :: RECEIVER(i) == me -> settle(i); loans[i] = 0
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0
#else
    skip
#endif
}

/* What does not wait. */
inline send_now(c)
{
    if
    :: len(outbox[c]) < OUTBOX -> put(c)
    :: len(outbox[c]) == OUTBOX && FULL(c) == DROP_OLDEST -> outbox[c]?_; put(c)
    :: len(outbox[c]) == OUTBOX && FULL(c) == DROP_NEWEST -> skip
    fi
}

/* exo_port_send to one channel. Only `block` waits. */
inline send(me, c)
{
    if
    :: TAKES(c) && len(outbox[c]) == OUTBOX && FULL(c) == BLOCK -> wait_in_send(me, len(outbox[c]) < OUTBOX || !TAKES(c))
    :: else
    fi;
    if
    :: TAKES(c) -> send_now(c)
    :: else
    fi
}

/* What is in a buffer goes to the actor. */
inline take(c)
{
    buffer[c]?item;
#if NUMBERS
    if
    :: FULL(c) == BLOCK -> assert(item == next[c])                  /* none lost, none twice, none overtaken */
    :: else -> assert((item + 32 - next[c]) % 32 < 16)              /* a gap at most                         */
    fi;
    next[c] = NEXT(item);
#endif
    item = 0;
    taken(c);
    settle(c)
}

/* `run` has returned, with whatever status: at once GONE to who sends here (never after the outputs: their receivers may be waiting for
 * just that), and nothing more is put into the outputs. */
inline finish(me)
{
    atomic {
#if !FINALLY
        leave_inputs(me);
#endif
        i = 0;
        do
        :: i < CHANNELS ->
            if
            :: SENDER(i) == me && ending[i] == 0 && s_open[i] -> ending[i] = 1; settle(i)
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0;
#if FINALLY
        do
        :: i < CHANNELS -> (SENDER(i) != me || ending[i] == 2); i++
        :: else -> break
        od;
        leave_inputs(me);
#endif
        over[me] = 1
    }
}

inline leave_inputs(me)
{
    waiting[me] = 0;
    i = 0;
    do
    :: i < CHANNELS ->
        if
        :: RECEIVER(i) == me && gone[i] == 0 && r_open[i] ->
            gone[i] = 1;
            do
            :: len(buffer[i]) > 0 -> buffer[i]?_
            :: else -> break
            od;
            settle(i)
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0
}

/* --- Actors ------------------------------------------------------------------------------------------------------------------------ */

#if FAULT
#define UNLESS_FAULT unless { crashed[me] || cancelled }   /* at any step, in any wait */
#else
#define UNLESS_FAULT
#endif

#define HAS(c)    (len(buffer[c]) > 0)
#define CLOSED(c) (!r_open[c] || (ended[c] && len(buffer[c]) == 0))
#define DEAD(c)   (FAULT && lost[c] && !TOLERATE)

/* OF_MAKERS(F, x): F of what is between every maker and x, joined by an operator; and the same of trainers. */
#if M == 1
#define OF_MAKERS(F, X, x, OP) F(X(0, x))
#define OF_MAKERS_BACK(F, X, x, OP) F(X(x, 0))
#elif M == 2
#define OF_MAKERS(F, X, x, OP) (F(X(0, x)) OP F(X(1, x)))
#define OF_MAKERS_BACK(F, X, x, OP) (F(X(x, 0)) OP F(X(x, 1)))
#elif M == 3
#define OF_MAKERS(F, X, x, OP) (F(X(0, x)) OP F(X(1, x)) OP F(X(2, x)))
#define OF_MAKERS_BACK(F, X, x, OP) (F(X(x, 0)) OP F(X(x, 1)) OP F(X(x, 2)))
#else
#define OF_MAKERS(F, X, x, OP) (F(X(0, x)) OP F(X(1, x)) OP F(X(2, x)) OP F(X(3, x)))
#define OF_MAKERS_BACK(F, X, x, OP) (F(X(x, 0)) OP F(X(x, 1)) OP F(X(x, 2)) OP F(X(x, 3)))
#endif
#if N == 1
#define OF_TRAINERS(F, X, x, OP) F(X(0, x))
#define OF_TRAINERS_BACK(F, X, x, OP) F(X(x, 0))
#elif N == 2
#define OF_TRAINERS(F, X, x, OP) (F(X(0, x)) OP F(X(1, x)))
#define OF_TRAINERS_BACK(F, X, x, OP) (F(X(x, 0)) OP F(X(x, 1)))
#elif N == 3
#define OF_TRAINERS(F, X, x, OP) (F(X(0, x)) OP F(X(1, x)) OP F(X(2, x)))
#define OF_TRAINERS_BACK(F, X, x, OP) (F(X(x, 0)) OP F(X(x, 1)) OP F(X(x, 2)))
#else
#define OF_TRAINERS(F, X, x, OP) (F(X(0, x)) OP F(X(1, x)) OP F(X(2, x)) OP F(X(3, x)))
#define OF_TRAINERS_BACK(F, X, x, OP) (F(X(x, 0)) OP F(X(x, 1)) OP F(X(x, 2)) OP F(X(x, 3)))
#endif

/* A port's next item: of any channel that has one. (The runtime takes them in the order of arrival, which is one of these.) */
inline next_item(first, step, count, c)
{
    if
    :: HAS(first) -> c = first
    :: count > 1 && HAS(first + step) -> c = first + step
    :: count > 2 && HAS(first + 2 * (step)) -> c = first + 2 * (step)
    :: count > 3 && HAS(first + 3 * (step)) -> c = first + 3 * (step)
    fi
}

#define GOES_ON(c) (TAKES(c) && len(outbox[c]) < OUTBOX)
#define STOPS(c) (!TAKES(c))
#define LOAD(c) (OUTBOX - len(outbox[c]) + credits[c])
#define AT_LEAST(c) (LOAD(c) <= LOAD(EXP(me, turn)))

#define s_open_(c) s_open[c]
#define r_open_(c) r_open[c]
#if N == 1
#define LEFT (over[M] || crashed[M])
#elif N == 2
#define LEFT (over[M] || crashed[M] || over[M + 1] || crashed[M + 1])
#elif N == 3
#define LEFT (over[M] || crashed[M] || over[M + 1] || crashed[M + 1] || over[M + 2] || crashed[M + 2])
#else
#define LEFT (over[M] || crashed[M] || over[M + 1] || crashed[M + 1] || over[M + 2] || crashed[M + 2] || over[M + 3] || crashed[M + 3])
#endif

proctype Maker(byte me)
{
    byte turn = me % N, i, c, item, made, n;
    {
#if APPLY
        OF_TRAINERS_BACK(s_open_, EXP, me, ||) || applied;
#endif
        do
        :: 1 ->
            /* 1. Parameters: all that is there; with WAIT at least one. */
#if PARAMETERS
            atomic {
#if WAIT
                if
                :: OF_TRAINERS(DEAD, PAR, me, ||) -> goto done
                :: OF_TRAINERS(CLOSED, PAR, me, &&) -> goto done
                :: OF_TRAINERS(HAS, PAR, me, ||) -> next_item(PAR(0, me), M, N, c); take(c)
                fi
#else
                do
                :: OF_TRAINERS(HAS, PAR, me, ||) -> next_item(PAR(0, me), M, N, c); take(c)
                :: AT_ONCE & 2 && OF_TRAINERS(HAS, PAR, me, ||) -> break    /* it has not arrived yet */
                :: else -> break
                od
#endif
                c = 0
            }
#endif
            /* 2. Experience: to the target that the route says, or to the next one if that one goes meanwhile. */
            atomic {
                skip;
again:
                if
                :: OF_TRAINERS_BACK(DEAD, EXP, me, ||) -> goto done
                :: else
                fi;
                if
                :: OF_TRAINERS_BACK(STOPS, EXP, me, &&) -> goto done    /* CLOSED */
                :: else
                fi;
#if ROUTE == ANY
                turn = 0;
                do
                :: turn + 1 < N -> turn++
                :: break
                od;
#endif
                do
                :: !TAKES(EXP(me, turn)) -> turn = (turn + 1) % N
                :: else -> break
                od;
#if ROUTE == LEAST_LOADED
                /* Waits only when no target has room. */
                if
                :: OF_TRAINERS_BACK(GOES_ON, EXP, me, ||) || EXP_FULL != BLOCK -> skip
                :: else -> wait_in_send(me, (OF_TRAINERS_BACK(GOES_ON, EXP, me, ||) || OF_TRAINERS_BACK(STOPS, EXP, me, &&)))
                fi;
                turn = 0;
                do
                :: turn < N && !GOES_ON(EXP(me, turn)) -> turn++
                :: else -> break
                od;
                if
                :: turn == N -> turn = 0; goto again
                :: else
                fi;
                i = turn;
                do
                :: i < N ->
                    if
                    :: GOES_ON(EXP(me, i)) && LOAD(EXP(me, i)) > LOAD(EXP(me, turn)) -> turn = i
                    :: else
                    fi;
                    i++
                :: else -> break
                od;
                i = 0;
#endif
                if
                :: len(outbox[EXP(me, turn)]) == OUTBOX && EXP_FULL == BLOCK ->
                    wait_in_send(me, len(outbox[EXP(me, turn)]) < OUTBOX || !TAKES(EXP(me, turn)))
                :: else
                fi;
                if
                :: !TAKES(EXP(me, turn)) -> goto again
                :: else -> send_now(EXP(me, turn))
                fi;
                turn = (ROUTE == ROUND_ROBIN -> (turn + 1) % N : 0);
                made = (ITEMS -> made + 1 : 0);
                if
                :: ITEMS && made == ITEMS -> (applied || !APPLY); goto done
                :: else
                fi
            }
        od;
done:   skip;
#if APPLY
        assert(N == 1 || made == ITEMS) /* of one maker with two trainers, one of them always takes */
#endif
    } UNLESS_FAULT;
    if
    :: crashed[me]
    :: else -> finish(me)
    fi
}

inline next_experience()
{
#if IN_ORDER
    order[t]?c
#else
    next_item(EXP(0, t), N, M, c)
#endif
}

inline learnt()
{
    got = 0;
    m = 0;
    update = (UPDATES -> update + 1 : 0);
    if
    :: !PARAMETERS && UPDATES && update == UPDATES -> goto done
    :: else
    fi
}

proctype Trainer(byte t)
{
    byte me = M + t, update, got, m, i, c, item, n;
    bit my_round;
    {
#if APPLY
        OF_MAKERS(r_open_, EXP, t, ||) || applied;
#endif
        do
        /* 1. Parameters, the initial ones first: to every maker in turn. */
#if PARAMETERS
        :: atomic {
            m < M ->
            if
            :: DEAD(PAR(t, m)) -> goto done
            :: else
            fi;
            send(me, PAR(t, m));
            m++;
            if
            :: m == M && UPDATES && update == UPDATES -> goto done
            :: else
            fi
        }
#endif
        /* 2. A batch of experience. */
        :: atomic {
            (m == M || !PARAMETERS) && got < BATCH ->
            if
            :: OF_MAKERS(DEAD, EXP, t, ||) -> goto done
            :: OF_MAKERS(CLOSED, EXP, t, &&) -> goto done
            :: OF_MAKERS(HAS, EXP, t, ||) -> next_experience(); take(c)
            fi;
            c = 0;
            got++;
            if
            :: got == BATCH && !ALL_REDUCE -> learnt()
            :: else
            fi
        }
        /* 3. Gradients. A trainer that has ended, however, ends the others' collective with a status. */
#if ALL_REDUCE
        :: atomic {
            got == BATCH ->
            joined++;
            my_round = round;
            if
            :: joined == N -> joined = 0; round = !round
            :: else -> (round != my_round || LEFT)
            fi;
            if
            :: round == my_round -> goto done
            :: else
            fi;
            my_round = 0;
            learnt()
        }
#endif
        od;
done:   skip
    } UNLESS_FAULT;
    if
    :: crashed[me]
    :: else -> finish(me)
    fi
}

/* --- What happens to them --------------------------------------------------------------------------------------------------------- */

#if FAULT
proctype Fault()
{
    byte who;
    atomic {
        if
        :: FAULT & 1 ->
            do
            :: who < ACTORS - 1 -> who++
            :: break
            od;
            if
            :: !over[who] -> crashed[who] = 1
            :: else
            fi;
            who = 0
        :: FAULT & 2 -> cancelled = 1
        :: skip
        fi
    }
}
#endif

#if APPLY
#define FIRST 0
#define LAST (CHANNELS - 1)
inline open_receiver()
{
    atomic {
        r_open[LAST] = 1;
        if
        :: over[RECEIVER(LAST)] -> gone[LAST] = 1
        :: else
        fi
    }
}

inline open_sender()
{
    atomic {
        s_open[LAST] = 1;
        if
        :: over[SENDER(LAST)] -> ending[LAST] = 1
        :: else
        fi
    }
}
proctype Apply()
{
    bit did_capacity, did_codec, did_add, did_remove;
    do
    /* Capacity is the receiver's affair alone: it is what it grants from. */
    :: atomic { !did_capacity -> capacity[FIRST] = 3 - capacity[FIRST]; did_capacity = 1 }
    /* Codec: the receiver first, then (its answer has come) the sender, between two items. */
    :: !did_codec ->
        if
        :: APPLY != 3 -> known[FIRST] = known[FIRST] | 2; s_epoch[FIRST] = 1
        :: APPLY == 3 -> s_epoch[FIRST] = 1; known[FIRST] = known[FIRST] | 2
        fi;
        did_codec = 1
    /* Add: the receiver first. An actor that has ended meanwhile says so at once. */
    :: !did_add ->
        if
        :: APPLY != 4 -> open_receiver(); open_sender()
        :: APPLY == 4 -> open_sender(); open_receiver()
        fi;
        did_add = 1
    /* Remove: what is in the outbox is sent, then END; the receiver's GONE says that all of it was taken. New before old. */
    :: !did_remove && (did_add || APPLY == 2) -> atomic {
        if
        :: ending[FIRST] == 0 -> ending[FIRST] = 1
        :: else
        fi;
        if
        :: APPLY == 5 && len(outbox[FIRST]) > 0 -> outbox[FIRST]?_
        :: else
        fi;
        did_remove = 1 }
        gone[FIRST] == 2 || !s_open[FIRST]
    :: did_capacity && did_codec && did_add && did_remove -> break
    od;
    applied = 1
}

#endif

init
{
    byte i;
    atomic {
        i = 0;
        do
        :: i < CHANNELS ->
            s_open[i] = (APPLY && i == CHANNELS - 1 -> 0 : 1);
            r_open[i] = s_open[i];
            known[i] = 1;
            capacity[i] = HOLDS(i);
            credits[i] = HOLDS(i);
            out[i] = HOLDS(i);
            i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < CHANNELS -> run Channel(i); i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < M -> run Maker(i); i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < N -> run Trainer(i); i++
        :: else -> break
        od;
#if FAULT
        run Fault();
#endif
#if APPLY
        run Apply();
#endif
        i = 0
    }
    /* At the end, when nothing can happen any more: each actor has ended (spin looks at that itself: they must be at the end of their
     * text), and each channel is closed at both ends. */
    timeout;
    atomic {
        do
        :: i < ACTORS && (over[i] || crashed[i]) -> i++
        :: i == ACTORS -> break
        od;
        i = 0;
        do
        :: i < CHANNELS ->
            assert((!s_open[i] && !r_open[i]) || (ended[i] && (gone[i] == 2 || crashed[SENDER(i)])));
            assert(crashed[SENDER(i)] || !s_open[i] || ending[i] == 2);
#ifdef COUNT
            assert(puts[i] == takes[i]);
#endif
            i++
        :: else -> break
        od
    }
}
