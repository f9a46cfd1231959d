package artifact

import "strings"

// Rules is a compiled set of ignore rules; see [Ignore] for what they mean.
// All patterns are one automaton: matching a path takes time proportional to
// its length, however many patterns there are. Rules are safe for concurrent
// use.
type Rules struct {
	rules   []Rule
	machine *machine
}

func newRules(patterns []pattern) (*Rules, error) {
	t, err := newTrie(patterns)
	if err != nil {
		return nil, err
	}
	r := &Rules{rules: make([]Rule, len(patterns)), machine: newMachine(t)}
	for i, p := range patterns {
		r.rules[i] = p.Rule
	}
	return r, nil
}

// Match reports the rule that decides about name and whether it is ignored.
// The rule is the zero Rule where none decides. name is a path as [fs.ValidPath]
// has it, relative to the top of the tree; dir says that it is a directory.
// Where name lies in an ignored directory, the rule is the directory's, unless
// a later one decides about name.
func (r *Rules) Match(name string, dir bool) (rule Rule, ignored bool) {
	if name == "." {
		return Rule{}, false
	}
	n := r.find(name).rule(dir)
	if n == none {
		return Rule{}, false
	}
	return r.rules[n], r.excludes(n)
}

// excludes reports whether the rule n, or none, excludes what it decides about.
func (r *Rules) excludes(n int32) bool { return n != none && !r.rules[n].Negate }

// A folder is a directory as the rules see it.
type folder struct {
	at   *state // after its path and a slash
	held int32  // the rule that excludes it, or none
}

// A spot is a path as the rules see it.
type spot struct {
	at   *state // after the path
	held int32  // the rule that excludes its directory, or none
}

// rule returns the rule that decides about a spot, or none.
func (p spot) rule(dir bool) int32 {
	if dir {
		return max(p.held, p.at.dir)
	}
	return max(p.held, p.at.file)
}

// top returns the root of the tree.
func (r *Rules) top() folder { return folder{r.machine.start, none} }

// in returns the spot of the name base in the directory f.
func (r *Rules) in(f folder, base string) spot {
	return spot{r.machine.run(f.at, base), f.held}
}

// below returns p as a directory.
func (r *Rules) below(p spot) folder {
	f := folder{r.machine.step(p.at, '/'), none}
	if n := p.rule(true); r.excludes(n) {
		f.held = n
	}
	return f
}

// find returns the spot of a path.
func (r *Rules) find(name string) spot {
	f := r.top()
	for {
		base, rest, more := strings.Cut(name, "/")
		p := r.in(f, base)
		if !more {
			return p
		}
		f, name = r.below(p), rest
	}
}

// folder returns the directory name, which may be the root.
func (r *Rules) folder(name string) folder {
	if name == "." {
		return r.top()
	}
	return r.below(r.find(name))
}

// reveals reports whether a view shows a directory: because it is included or
// because a rule may include something below it.
func (f folder) reveals() bool { return f.held == none || f.at.reinclude > f.held }

// shows reports whether a view shows what is at p.
func (r *Rules) shows(p spot, dir bool) bool {
	if !dir {
		return !r.excludes(p.rule(false))
	}
	return r.below(p).reveals()
}
