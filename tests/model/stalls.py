#!/usr/bin/env python3
"""What `exogym graph check` says of small graphs drawn by lot, beside a model that shares nothing with it.

The model is docs/channels.md, message by message: outboxes, DATA, CREDIT, END and GONE on wires that take any time, buffers, the rule of
feedback edges. It tries every order of steps of a graph, and then looks for actors that can never move again and that wait for nobody else:
by what can be reached, not by what channels hold. A graph that the check calls proven and that can stall is a fault, as is one that it
says stalls in any case and that can come to its end.

    stalls.py EXOGYM PLUGIN [GRAPHS [SEED]]    PLUGIN: build/dev/tests/plugins/script.so
"""
import collections
import os
import random
import subprocess
import sys
import tempfile
import time

MOST = 1000  # states of a graph; larger ones are left out


# --- Graphs
# -------------------------------------------------------------------------------------------------------------------------

def draw_script(rng, uses, idle):
    """Steps at the ports in `uses` [(verb, port)], mostly in their order."""
    steps = []
    for verb, port in uses:
        if rng.random() < 0.08:
            continue
        count = rng.choice([1, 1, 1, 2, 3])
        if verb == 'receive' and rng.random() < 0.12:
            steps.append(f'poll {port}')
            continue
        steps.append(f'{count} {verb} {port}' if count > 1 else f'{verb} {port}')
    if rng.random() < 0.35:
        rng.shuffle(steps)
    if rng.random() < 0.2:
        steps.insert(rng.randrange(len(steps) + 1), rng.choice([f'600 send {idle}', f'send {idle}', f'9 poll {idle}']))
    if not steps:
        return f'send {idle}'
    if len(steps) > 2 and rng.random() < 0.2:
        steps = [steps[0], '%d (%s)' % (rng.choice([2, 3]), '; '.join(steps[1:]))]
    text = '; '.join(steps)
    how = rng.random()
    if how < 0.4:
        return text
    return f'*({text})' if how < 0.7 else f'{rng.choice([2, 3])} ({text})'


def draw_graph(rng):
    names = ['a', 'b', 'c'][:rng.choice([2, 2, 2, 3, 3])]
    counts = {n: 1 for n in names}
    if rng.random() < 0.4:
        counts[rng.choice(names)] = 2
    edges, uses = [], {n: [] for n in names}
    for e in range(rng.choice([1, 2, 2, 3, 3, 4]) if len(names) < 3 else rng.choice([2, 3, 3, 4])):
        a, b = rng.sample(names, 2)
        routes = ['round_robin', 'broadcast', 'hash', 'modulo'] if counts[b] > 1 else ['one', 'one', 'round_robin']
        edge = dict(frm=a, to=b, port=f'p{e}', route=rng.choice(routes), capacity=rng.choice([1, 1, 2]),
                    on_full=rng.choice(['block'] * 9 + ['drop_oldest', 'drop_newest']),
                    every=rng.choice([1, 1, 1, 1, 1, 2]))
        edges.append(edge)
        uses[a].append(('send', edge['port']))
        uses[b].append(('receive', edge['port']))
    if rng.random() < 0.1 and len(edges) > 1:  # one port, two edges
        twin = dict(edges[0])
        others = [n for n in names if n not in (twin['frm'], twin['to'])]
        if others:
            twin['to'] = others[0]
            twin['route'] = 'broadcast' if counts[others[0]] > 1 else 'one'
            edges.append(twin)
            uses[others[0]].append(('receive', twin['port']))
    group = [n for n in names if counts[n] > 1]
    if group and rng.random() < 0.6:
        uses[group[0]].insert(rng.randrange(len(uses[group[0]]) + 1), ('reduce', 'g0'))
        edges.append(dict(frm=group[0], to=group[0], port='g0', route='all_reduce'))
    scripts = {n: draw_script(rng, uses[n], 'p15') for n in names}
    return dict(names=names, counts=counts, edges=edges, scripts=scripts)


def text_of(g, plugin):
    out = [f'plugins: [{plugin}]', 'actors:']
    for n in g['names']:
        out.append(f"  {n}: {{class: declared, count: {g['counts'][n]}, config: {{script: '{g['scripts'][n]}'}}}}")
    out.append('edges:')
    for e in g['edges']:
        if e['route'] == 'all_reduce':
            out.append(f"  - {{from: {e['frm']}, to: {e['to']}, carries: {e['port']}}}")
        else:
            out.append(f"  - {{from: {e['frm']}, to: {e['to']}, carries: {e['port']}, route: {e['route']}, every: {e['every']}, "
                       f"buffer: {{capacity: {e['capacity']}, on_full: {e['on_full']}}}}}")
    return '\n'.join(out) + '\n'


# --- Scripts: a list of instructions (kind, argument)
# ---------------------------------------------------------------------------------

def compile_script(text, used):
    """('send'|'receive'|'poll'|'reduce', port), ('loop', count, end), ('end', begin); count -1: no end. Ports that are not used: nothing."""
    code, at = [], 0
    words = text.replace('(', ' ( ').replace(')', ' ) ').replace(';', ' ; ').replace('*', ' * ').split()

    def steps():
        nonlocal at
        step()
        while at < len(words) and words[at] == ';':
            at += 1
            step()

    def step():
        nonlocal at
        count = 1
        if words[at] == '*':
            count, at = -1, at + 1
        elif words[at].isdigit():
            count, at = int(words[at]), at + 1
        begin = len(code)
        if count != 1:
            code.append(None)
        if words[at] == '(':
            at += 1
            steps()
            at += 1
        else:
            verb, port = words[at], words[at + 1]
            at += 2
            if (verb, port) in used:
                code.append((verb, port))
        if count != 1:
            if len(code) == begin + 1 and count > 0:
                code.pop()  # a loop with nothing in it
            elif len(code) == begin + 1:
                code[begin] = ('idle', None)  # for ever
            else:
                code[begin] = ('loop', count, len(code))
                code.append(('end', begin))

    steps()
    return code


# --- The model
# ----------------------------------------------------------------------------------------------------------------------

class Model:
    def __init__(self, g):
        self.actors = [(n, i) for n in g['names'] for i in range(g['counts'][n])]
        self.index = {a: k for k, a in enumerate(self.actors)}
        self.edges = [e for e in g['edges'] if e['route'] != 'all_reduce']
        used = {n: set() for n in g['names']}
        for e in g['edges']:
            if e['route'] == 'all_reduce':
                used[e['frm']].add(('reduce', e['port']))
            else:
                used[e['frm']].add(('send', e['port']))
                used[e['to']] |= {('receive', e['port']), ('poll', e['port'])}
        self.code = [compile_script(g['scripts'][n], used[n]) for n, _ in self.actors]
        self.members = {n: [k for k, a in enumerate(self.actors) if a[0] == n] for n in g['names']}
        block = [(e['frm'], e['to']) for e in self.edges if e['on_full'] == 'block']

        def leads(a, b):
            seen, todo = {a}, [a]
            while todo:
                x = todo.pop()
                for f, t in block:
                    if f == x and t not in seen:
                        seen.add(t)
                        todo.append(t)
            return b in seen

        self.channels, self.by = [], {}
        for k, e in enumerate(self.edges):
            e['feedback'] = e['on_full'] == 'block' and leads(e['to'], e['frm'])
            senders, receivers = g['counts'][e['frm']], g['counts'][e['to']]
            for i in range(senders):
                if e['route'] == 'modulo':
                    targets = range(i, receivers, senders) if senders <= receivers else [i % receivers]
                elif e['route'] == 'one' and receivers > 1:
                    targets = [i]
                else:
                    targets = range(receivers)
                for j in targets:
                    self.by.setdefault((k, self.index[(e['frm'], i)]), []).append(len(self.channels))
                    self.channels.append((k, self.index[(e['frm'], i)], self.index[(e['to'], j)]))
        n = len(self.actors)
        self.outputs = [[c for c, ch in enumerate(self.channels) if ch[1] == a] for a in range(n)]
        self.inputs = [[c for c, ch in enumerate(self.channels) if ch[2] == a] for a in range(n)]
        self.turns = {key: t for t, key in enumerate(self.by)}

    # A state: (actors, channels, turns). An actor: (pc, counters, send or None); a send: (edges to
    # do, targets to do). A channel, see start().
    def start(self):
        actors = tuple(self.settle(a, 0, {}) + (None,) for a in range(len(self.actors)))
        channels = []
        for k, _, _ in self.channels:
            e = self.edges[k]
            credits = e['capacity'] if e['on_full'] in ('block', 'drop_newest') else -1
            channels.append((0, credits, 0, 0, 0, 0, 0, 0, 0))
            # outbox, credits, data on the wire, buffered, credits on the wire, END sent, END came,
            # GONE sent, GONE came
        return (actors, tuple(channels), tuple((0, 0) for _ in self.turns))

    def settle(self, a, pc, counters):
        code, counters = self.code[a], dict(counters)
        while pc < len(code):
            kind = code[pc]
            if kind[0] == 'loop':
                counters[pc] = kind[1]
                pc = pc + 1 if kind[1] else kind[2] + 1
            elif kind[0] == 'end':
                begin = kind[1]
                if counters[begin] > 0:
                    counters[begin] -= 1
                if counters[begin]:
                    pc = begin + 1
                else:
                    del counters[begin]
                    pc += 1
            else:
                break
        if pc >= len(code):
            counters = {}
        return pc, tuple(sorted(counters.items()))

    def over(self, state, a):
        return state[0][a][0] >= len(self.code[a])

    def advance(self, actors, a):
        pc, counters, _ = actors[a]
        actors[a] = self.settle(a, pc + 1, dict(counters)) + (None,)

    def end(self, actors, a):
        actors[a] = (len(self.code[a]), (), None)

    def blocked_on(self, state, a):
        """The channel that a send has to put its item into, if it has no room."""
        send = state[0][a][2]
        if not send or not send[1]:
            return None
        c = send[1][0]
        ch = state[1][c]
        e = self.edges[self.channels[c][0]]
        return c if e['on_full'] == 'block' and ch[0] == 1 and not ch[8] else None

    def tidy(self, actors, channels):
        """What happens at once: transmitting, END, GONE, credits."""
        state = (actors, channels)
        for c, (k, s, r) in enumerate(self.channels):
            e = self.edges[k]
            ob, cr, wd, bf, wc, es, er, gs, gr = channels[c]
            s_over, r_over = actors[s][0] >= len(self.code[s]), actors[r][0] >= len(self.code[r])
            if gr:
                ob = 0
            if ob and (cr > 0 or cr < 0):
                ob, wd = 0, wd + 1
                cr -= cr > 0
            if s_over and not ob:
                es = 1
            if r_over:
                gs, bf = 1, 0
            if cr < 0 and bf > e['capacity']:
                bf = e['capacity']
            if not gs and er and bf == 0 and wd == 0:
                gs = 1
            if not gs and cr >= 0:
                out = cr + wd + wc + ob * 0
                if e['capacity'] > bf + out:
                    wc += e['capacity'] - bf - out
                    out = e['capacity'] - bf
                if e['feedback'] and out == 0 and self.blocked_on(state, r) is not None:
                    wc += 1
            if es:
                cr, wc = (-1 if cr < 0 else 0), 0
            if gr:
                cr, wc = (-1 if cr < 0 else 0), 0
            if gs:
                wd = 0
            channels[c] = (ob, cr, wd, bf, wc, es, er, gs, gr)

    def make(self, actors, channels, turns):
        while True:
            before = tuple(channels)
            self.tidy(actors, channels)
            if tuple(channels) == before:
                return (tuple(actors), before, tuple(turns))

    def steps(self, state):
        """[(who, next)]; who -1: a wire. None for next: an error ends the run."""
        actors, channels, turns = state
        out = []
        for c, ch in enumerate(channels):
            ob, cr, wd, bf, wc, es, er, gs, gr = ch
            if wd:
                out.append((-1, self.change(state, c, (ob, cr, wd - 1, bf + 1, wc, es, er, gs, gr))))
            if wc:
                out.append((-1, self.change(state, c, (ob, cr + wc, wd, bf, 0, es, er, gs, gr))))
            if es and not er and not wd:
                out.append((-1, self.change(state, c, (ob, cr, wd, bf, wc, es, 1, gs, gr))))
            if gs and not gr:
                out.append((-1, self.change(state, c, (ob, cr, wd, bf, wc, es, er, gs, 1))))
        for a in range(len(self.actors)):
            if not self.over(state, a):
                self.act(state, a, out)
        return out

    def change(self, state, c, ch):
        channels = list(state[1])
        channels[c] = ch
        return self.make(list(state[0]), channels, state[2])

    def act(self, state, a, out):
        verb, port = self.code[a][state[0][a][0]]
        if verb == 'idle':
            return
        if verb == 'send':
            self.send(state, a, port, out)
        elif verb in ('receive', 'poll'):
            self.take(state, a, port, verb, out)
        else:
            self.reduce(state, a, port, out)

    def send(self, state, a, port, out):
        actors, channels, turns = list(state[0]), list(state[1]), list(state[2])
        pc, counters, send = actors[a]
        name = self.actors[a]
        if send is None:
            send = (tuple(k for k, e in enumerate(self.edges) if e['port'] == port and e['frm'] == name[0]), ())
            actors[a] = (pc, counters, send)
        if send[1]:
            c = send[1][0]
            if self.blocked_on(tuple([tuple(actors), state[1]]), a) is not None:
                return
            ob, *rest = channels[c]
            if not channels[c][8]:
                channels[c] = (1, *rest)  # drop_newest with a full outbox: the item is gone
            actors[a] = (pc, counters, (send[0], send[1][1:]))
            self.after_send(actors, channels, turns, a, port, out)
            return
        if not send[0]:
            self.after_send(actors, channels, turns, a, port, out)
            return
        k = send[0][0]
        e = self.edges[k]
        mine = self.by.get((k, a), [])
        if not mine:
            actors[a] = (pc, counters, (send[0][1:], ()))
            self.after_send(actors, channels, turns, a, port, out)
            return
        t = self.turns[(k, a)]
        turn, sends = turns[t]
        turns[t] = (turn, (sends + 1) % e['every'])
        if sends:
            actors[a] = (pc, counters, (send[0][1:], ()))
            self.after_send(actors, channels, turns, a, port, out)
            return
        turns[t] = ((turn + 1) % len(mine), (sends + 1) % e['every'])
        choices = {'one': [0], 'modulo': [turn % len(mine)], 'round_robin': [(name[1] + turn) % len(mine)],
                   'hash': range(len(mine)), 'broadcast': [None]}[e['route']]
        for at in choices:
            if at is None:
                targets = tuple(mine)
            else:
                for _ in mine:
                    if channels[mine[at]][8]:
                        at = (at + 1) % len(mine)
                targets = (mine[at],)
            now = list(actors)
            now[a] = (pc, counters, (send[0][1:], targets))
            out.append((a, self.make(now, list(channels), turns)))

    def after_send(self, actors, channels, turns, a, port, out):
        if actors[a][2] == ((), ()):
            mine = [c for c in self.outputs[a] if self.edges[self.channels[c][0]]['port'] == port]
            if mine and all(channels[c][8] for c in mine):
                self.end(actors, a)
            else:
                self.advance(actors, a)
        out.append((a, self.make(actors, channels, turns)))

    def take(self, state, a, port, verb, out):
        mine = [c for c in self.inputs[a] if self.edges[self.channels[c][0]]['port'] == port]
        here = [c for c in mine if state[1][c][3]]
        if verb == 'poll':
            actors, channels = list(state[0]), list(state[1])
            for c in here:
                ch = channels[c]
                channels[c] = ch[:3] + (0,) + ch[4:]
            self.advance(actors, a)
            out.append((a, self.make(actors, channels, state[2])))
            return
        for c in here:
            actors, channels = list(state[0]), list(state[1])
            ch = channels[c]
            channels[c] = ch[:3] + (ch[3] - 1,) + ch[4:]
            self.advance(actors, a)
            out.append((a, self.make(actors, channels, state[2])))
        if not here and all(state[1][c][6] for c in mine):
            actors = list(state[0])
            self.end(actors, a)
            out.append((a, self.make(actors, list(state[1]), state[2])))

    def at_reduce(self, state, m, port):
        return not self.over(state, m) and self.code[m][state[0][m][0]] == ('reduce', port)

    def reduce(self, state, a, port, out):
        team = self.members[self.actors[a][0]]
        if any(self.over(state, m) for m in team):
            out.append((a, None))
        elif all(self.at_reduce(state, m, port) for m in team):
            actors = list(state[0])
            for m in team:
                self.advance(actors, m)
            out.append((a, self.make(actors, list(state[1]), state[2])))

    def waits_for(self, state, a):
        """Actors, and whether any of them is enough to go on (a receive), or all are needed."""
        verb, port = self.code[a][state[0][a][0]]
        if verb == 'send':
            return {self.channels[self.blocked_on(state, a)][2]}, False
        if verb == 'receive':
            return {self.channels[c][1] for c in self.inputs[a]
                    if self.edges[self.channels[c][0]]['port'] == port and not state[1][c][6]}, True
        return {m for m in self.members[self.actors[a][0]] if not self.at_reduce(state, m, port)}, False

    def search(self):
        """(can stall, a cycle in words, can end without); None: too large."""
        first = self.make(*(list(x) for x in self.start()))
        number, states, arrows, errors = {first: 0}, [first], [], False
        at = 0
        while at < len(states):
            if len(states) > MOST:
                return None
            mine = []
            for who, nxt in self.steps(states[at]):
                if nxt is None:
                    errors = True
                    mine.append((who, at))
                    continue
                k = number.setdefault(nxt, len(states))
                if k == len(states):
                    states.append(nxt)
                mine.append((who, k))
            arrows.append(mine)
            at += 1
        back = [[] for _ in states]
        for s, mine in enumerate(arrows):
            for _, k in mine:
                back[k].append(s)
        n = len(self.actors)
        moves = []
        for a in range(n):
            can, todo = bytearray(len(states)), []
            for s, mine in enumerate(arrows):
                if any(who == a or (who >= 0 and self.is_team(states[s], who, a)) for who, _ in mine):
                    can[s] = 1
                    todo.append(s)
            while todo:
                for s in back[todo.pop()]:
                    if not can[s]:
                        can[s] = 1
                        todo.append(s)
            moves.append(can)
        words, ends = None, errors
        for s, state in enumerate(states):
            stuck = {a for a in range(n) if not self.over(state, a) and not moves[a][s]
                     and self.code[a][state[0][a][0]][0] != 'idle'}
            changed = True
            while changed:
                changed = False
                for a in list(stuck):
                    others, any_of = self.waits_for(state, a)
                    if (any_of and others - stuck) or not others & stuck:
                        stuck.discard(a)
                        changed = True
            if stuck and not words:
                words = ', '.join(f'{self.actors[a][0]}_{self.actors[a][1]} at {self.code[a][state[0][a][0]]}' for a in sorted(stuck))
            ends = ends or (not arrows[s] and all(self.over(state, a) for a in range(n)))
        return words is not None, words, ends, len(states)

    def is_team(self, state, who, a):
        """A step of a collective is one of all its members."""
        if self.over(state, who) or self.over(state, a):
            return False
        verb, port = self.code[who][state[0][who][0]]
        return verb == 'reduce' and self.actors[who][0] == self.actors[a][0]


# --- Comparing
# ----------------------------------------------------------------------------------------------------------------------

def verdict_of(exogym, path):
    r = subprocess.run([exogym, 'graph', 'check', '--load-plugins', path], capture_output=True, text=True)
    said = r.stderr + r.stdout
    if 'this graph stalls: ' in said:
        return 'stalls', said
    if 'this can stall: ' in said:
        return 'can stall', said
    if 'cannot prove' in said:
        return 'not proven', said
    if r.returncode:
        return 'refused', said
    return 'sound', said


def main():
    exogym, plugin = (os.path.abspath(path) for path in sys.argv[1:3])
    graphs = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    print(f'{graphs} graphs from seed {seed}', flush=True)
    counts, faults, began = collections.Counter(), 0, time.time()
    with tempfile.TemporaryDirectory() as folder:
        path = f'{folder}/g.yaml'
        for k in range(seed, seed + graphs):
            g = draw_graph(random.Random(k))
            with open(path, 'w') as f:
                f.write(text_of(g, plugin))
            verdict, said = verdict_of(exogym, path)
            if verdict == 'refused':
                counts['refused'] += 1
                continue
            found = Model(g).search()
            if found is None:
                counts[verdict, 'too large'] += 1
                continue
            can, words, ends, states = found
            counts[verdict, 'can stall' if can else 'cannot'] += 1
            wrong = verdict == 'sound' and can or verdict == 'stalls' and ends or verdict in ('stalls', 'can stall') and not can
            if wrong:
                kind = 'FAULT' if verdict == 'sound' or verdict == 'stalls' else 'FALSE ALARM'
                faults += kind == 'FAULT'
                print(f'{kind}: seed {k}: the check says {verdict}, the model {"can stall: " + words if can else "cannot stall"}'
                      f'{", and can end" if ends else ""} ({states} states)\n{said}{open(path).read()}', flush=True)
    for key, count in sorted(counts.items(), key=str):
        print(f'{count:6}  {" / ".join(key) if isinstance(key, tuple) else key}')
    print(f'{faults} faults, {time.time() - began:.0f} s')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
