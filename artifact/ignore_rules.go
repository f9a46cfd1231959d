package artifact

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// ErrIgnore is what ignore rules fail with that cannot be read or applied.
var ErrIgnore = errors.New("ignore rules")

// maxIgnoreWork bounds what matching costs: comparisons of one pattern with one
// path, each weighed by the 256 bytes that pattern and path multiply to.
const maxIgnoreWork = 1 << 30

// maxFolders is how many directories Rules remember the verdict of.
const maxFolders = 1 << 14

// none is the index of no pattern.
const none = -1

// Rules is a compiled set of ignore rules; see [Ignore] for what they mean.
// Rules are safe for concurrent use.
//
// A pattern that matches a directory matches all that is in it, so that below a
// directory only the patterns count that stand later than the last that matches
// it. Rules remember that one for directories.
type Rules struct {
	patterns []pattern
	files    map[string]span // patterns of ignore files, by directory, that of the top excepted
	first    span            // defaults, and those of the top
	last     span            // of spec.ignore
	negated  []int           // patterns that include again

	left    atomic.Int64 // of maxIgnoreWork
	dropped atomic.Bool  // something was ignored

	mu      sync.Mutex // guards folders
	folders map[string]*folder
}

// A pattern is one line.
type pattern struct {
	Rule
	domain  string // the directory it applies below: "" or ending in /
	depth   int    // of the domain
	glob    string // without !, the / at the end and what spaces are trimmed
	dirOnly bool
	whole   bool   // a / in it: it is matched against the path below the domain, else against names
	plain   string // the name has to be this, or end so with suffix; "" says nothing
	suffix  bool
	match   gitignore.Pattern // for paths below the domain
}

// A span is a run of patterns.
type span struct{ from, to int }

// A folder is a directory as the rules see it.
type folder struct {
	parts []string // of its path
	held  int      // the last pattern that matches it, or none
	spans []span   // the patterns for what it holds, lowest priority first; r.last is the last
}

// newRules compiles patterns, which stand in the order of their priority.
func newRules(patterns []pattern) *Rules {
	r := &Rules{patterns: patterns, files: map[string]span{}, folders: map[string]*folder{}}
	r.left.Store(maxIgnoreWork)
	n := len(patterns)
	r.last = span{n, n}
	for i, p := range patterns {
		if p.Negate {
			r.negated = append(r.negated, i)
		}
		switch {
		case p.Source == extraName:
			r.last.from = min(r.last.from, i)
		case p.domain == "":
			r.first.to = i + 1
		default:
			s, ok := r.files[p.domain]
			if !ok {
				s.from = i
			}
			r.files[p.domain] = span{s.from, i + 1}
		}
	}
	return r
}

// Match reports the rule that decides about name and whether it is ignored.
// The rule is the zero Rule where none decides. name is a path as [fs.ValidPath]
// has it, relative to the top of the tree; dir says that it is a directory.
//
// It fails with the cause of ctx when that ends, and with an error that wraps
// [ErrIgnore] once matching has taken more than 1,073,741,824 comparisons, long
// patterns and paths counted as several, over the life of the rules.
func (r *Rules) Match(ctx context.Context, name string, dir bool) (rule Rule, ignored bool, err error) {
	if name == "." {
		return Rule{}, false, nil
	}
	f, base, err := r.parent(ctx, name)
	if err != nil {
		return Rule{}, false, err
	}
	n, err := r.decide(ctx, f, base, dir)
	if err != nil || n == none {
		return Rule{}, false, err
	}
	if r.excludes(n) {
		r.dropped.Store(true)
	}
	return r.patterns[n].Rule, r.excludes(n), nil
}

// Emptied reports whether the rules removed every file: an archive with that
// report, packed from a view of them, has none, and they ignored something. Nil
// rules ignore nothing.
func (r *Rules) Emptied(packed Report) bool {
	return r != nil && packed.Files == 0 && r.dropped.Load()
}

// excludes reports whether the pattern n, or none, excludes what it decides about.
func (r *Rules) excludes(n int) bool { return n != none && !r.patterns[n].Negate }

// parent returns the directory that name is in, and its name there.
func (r *Rules) parent(ctx context.Context, name string) (*folder, string, error) {
	dir, base := path.Split(name)
	f, err := r.folder(ctx, strings.TrimSuffix(dir, "/"))
	return f, base, err
}

// folder returns the directory name, which is "" for the root.
func (r *Rules) folder(ctx context.Context, name string) (*folder, error) {
	if name == "" {
		return &folder{held: none, spans: []span{r.first, r.last}}, nil
	}
	r.mu.Lock()
	f := r.folders[name]
	r.mu.Unlock()
	if f != nil {
		return f, nil
	}
	above, base, err := r.parent(ctx, name)
	if err != nil {
		return nil, err
	}
	held, err := r.decide(ctx, above, base, true)
	if err != nil {
		return nil, err
	}
	f = r.below(above, name, base, held)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.folders) == maxFolders {
		clear(r.folders)
	}
	r.folders[name] = f
	return f, nil
}

// below returns the directory base of above, whose path is name.
func (r *Rules) below(above *folder, name, base string, held int) *folder {
	f := &folder{parts: append(slices.Clip(above.parts), base), held: held, spans: above.spans}
	if own, ok := r.files[name+"/"]; ok {
		others := len(f.spans) - 1
		f.spans = slices.Insert(slices.Clone(f.spans), others, own)
	}
	return f
}

// decide returns the last pattern that matches the name base in f, or none. It
// is the one that matches f itself unless a later one does.
func (r *Rules) decide(ctx context.Context, f *folder, base string, dir bool) (int, error) {
	full := append(slices.Clip(f.parts), base)
	long := len(base)
	for _, part := range f.parts {
		long += len(part)
	}
	tried, work := 0, int64(0)
	for _, s := range slices.Backward(f.spans) {
		for i := s.to - 1; i >= max(s.from, f.held+1); i-- {
			p := &r.patterns[i]
			if tried++; tried%1024 == 0 && ctx.Err() != nil {
				return none, context.Cause(ctx)
			}
			at := full[len(f.parts):]
			if p.whole {
				at = full[p.depth:]
			}
			if work++; p.excluded(base) {
				continue
			}
			if err := r.charge(work + int64(len(p.glob))*int64(long)/256); err != nil {
				return none, err
			}
			work = 0
			if p.match.Match(at, dir) != gitignore.NoMatch {
				return i, nil
			}
		}
	}
	return f.held, r.charge(work)
}

// excluded reports at once that the pattern cannot match a name.
func (p *pattern) excluded(base string) bool {
	switch {
	case p.plain == "":
		return false
	case p.suffix:
		return !strings.HasSuffix(base, p.plain)
	}
	return base != p.plain
}

// charge counts work, and fails when there was too much.
func (r *Rules) charge(work int64) error {
	if r.left.Add(-work) >= 0 {
		return nil
	}
	count, most := map[string]int{}, ""
	for _, p := range r.patterns {
		if count[p.Source]++; count[p.Source] > count[most] {
			most = p.Source
		}
	}
	return fmt.Errorf("%w: matching %d patterns, %d of them in %s, takes more than %d comparisons with paths: use fewer or shorter patterns, or a source with fewer files",
		ErrIgnore, len(r.patterns), count[most], most, maxIgnoreWork)
}

// reveals reports whether a view shows the directory name, f to the rules:
// because it is included, or because a later pattern may include something below it.
func (r *Rules) reveals(ctx context.Context, f *folder) (bool, error) {
	if !r.excludes(f.held) {
		return true, nil
	}
	name := path.Join(f.parts...) + "/"
	for k, i := range slices.Backward(r.negated) {
		p := &r.patterns[i]
		switch {
		case i <= f.held:
			return false, nil
		case strings.HasPrefix(p.domain, name):
			return true, nil
		case strings.HasPrefix(name, p.domain) && p.reaches(f.parts[p.depth:]):
			return true, nil
		}
		if k%1024 == 0 && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if err := r.charge(1 + int64(len(p.glob))*int64(len(name))/256); err != nil {
			return false, err
		}
	}
	return false, nil
}

// reaches reports whether the pattern may match something below the directory
// dir of its domain, which it does not match itself.
func (p *pattern) reaches(dir []string) bool {
	if !p.whole {
		return true
	}
	parts := strings.FieldsFunc(p.glob, func(c rune) bool { return c == '/' })
	if slices.Contains(parts[:min(len(parts), len(dir))], "**") {
		return true
	}
	if len(parts) <= len(dir) {
		return false
	}
	above := "/" + strings.Join(parts[:len(dir)], "/") + "/**"
	return gitignore.ParsePattern(above, nil).Match(dir, true) != gitignore.NoMatch
}
