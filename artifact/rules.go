package artifact

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// Rules is a compiled set of ignore rules; see [Ignore] for their meaning. Rules are safe for
// concurrent use.
//
// Matching takes time linear in the number of patterns. Only the context bounds the cost of a tree
// with its own ignore files.
type Rules struct {
	extra      []*pattern            // from spec.ignore
	files      map[string][]*pattern // the others, by their domain
	negated    []*pattern
	ignoredAny atomic.Bool // something was ignored

	mu       sync.Mutex
	verdicts map[string]verdict // cached, by name
}

// maxVerdicts is the maximum number of cached verdicts. The verdict of a directory is needed several
// times, and again for each of its entries.
const maxVerdicts = 1 << 14

// A verdict has the patterns that decide about a name, nil if there is none.
type verdict struct {
	file *pattern // if it is a file
	dir  *pattern // if it is a directory
}

func (p *pattern) excludes() bool { return p != nil && !p.Negate }

// newRules compiles patterns, lowest priority first.
func newRules(list []*pattern) *Rules {
	r := &Rules{files: map[string][]*pattern{}, verdicts: map[string]verdict{"": {}}}
	for i, p := range list {
		p.order = i
		if p.Negate {
			r.negated = append(r.negated, p)
		}
		if p.Source == extraName {
			r.extra = append(r.extra, p)
		} else {
			r.files[p.domain] = append(r.files[p.domain], p)
		}
	}
	return r
}

// Match returns the rule that decides about name and whether name is ignored. The rule is the zero
// Rule if no rule decides. name is a path as in [fs.ValidPath], relative to the root of the tree;
// dir says whether it is a directory. The error is the cause of ctx if it ends.
func (r *Rules) Match(ctx context.Context, name string, dir bool) (rule Rule, ignored bool, err error) {
	if name == "." {
		return Rule{}, false, nil
	}
	v, err := r.judge(ctx, name)
	p := v.file
	if dir {
		p = v.dir
	}
	if p == nil {
		return Rule{}, false, err
	}
	if p.excludes() {
		r.ignoredAny.Store(true)
	}
	return p.Rule, p.excludes(), nil
}

// Emptied reports whether the rules removed every file: packed, the report of an archive packed
// from a view of the rules, has no files, and the rules ignored something. Nil rules ignore
// nothing.
func (r *Rules) Emptied(packed Report) bool {
	return r != nil && packed.Files == 0 && r.ignoredAny.Load()
}

// judge returns the verdict about name. A pattern that matches a directory matches everything in
// it, so judge tries only patterns with a higher priority than the parent's.
func (r *Rules) judge(ctx context.Context, name string) (verdict, error) {
	if ctx.Err() != nil {
		return verdict{}, context.Cause(ctx)
	}
	r.mu.Lock()
	v, ok := r.verdicts[name]
	r.mu.Unlock()
	if ok {
		return v, nil
	}
	parent := parentOf(name)
	above, err := r.judge(ctx, parent)
	if err != nil {
		return verdict{}, err
	}
	v = verdict{above.dir, above.dir}
	parts, tried := strings.Split(strings.TrimPrefix(name, "/"), "/"), 0
	base := parts[len(parts)-1]
	for p := range r.patternsFor(name) {
		if tried++; tried%256 == 0 && ctx.Err() != nil {
			return verdict{}, context.Cause(ctx)
		}
		if p == above.dir {
			break
		}
		if base != p.literal && p.literal != "" && !(p.suffix && strings.HasSuffix(base, p.literal)) {
			continue // fast path: most patterns do not need the matcher
		}
		at := parts[len(parts)-1:]
		if p.matchPath {
			at = parts[p.depth:]
		}
		if p.match.Match(at, true) == gitignore.NoMatch {
			continue
		}
		if v.dir == above.dir {
			v.dir = p
		}
		if !p.dirOnly {
			v.file = p
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.verdicts) >= maxVerdicts {
		r.verdicts = map[string]verdict{"": {}}
	}
	r.verdicts[name] = v
	return v, nil
}

// parentOf returns the parent directory of name, "" for the root. The keys of a bucket may be
// unusual names, such as ./a.
func parentOf(name string) string { return name[:max(strings.LastIndexByte(name, '/'), 0)] }

// patternsFor yields the patterns whose domain contains name, highest priority first.
func (r *Rules) patternsFor(name string) iter.Seq[*pattern] {
	return func(yield func(*pattern) bool) {
		for list, dir := r.extra, name; ; list = r.files[dir] {
			for _, p := range slices.Backward(list) {
				if !yield(p) {
					return
				}
			}
			if dir == "" {
				return
			}
			dir = parentOf(dir)
		}
	}
}

// reveals reports whether a view shows the directory name, for which p decides: either it is
// included, or a pattern with a higher priority may include something below it.
func (r *Rules) reveals(ctx context.Context, name string, p *pattern) (bool, error) {
	if !p.excludes() {
		return true, nil
	}
	parts := strings.Split(name, "/")
	for k, n := range slices.Backward(r.negated) {
		switch {
		case n.order < p.order:
			return false, nil
		case n.mayMatchBelow(name, parts):
			return true, nil
		case k%256 == 0 && ctx.Err() != nil:
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

// mayMatchBelow reports whether the pattern may match something below the directory name, which it
// does not match itself. parts are the parts of name.
func (p *pattern) mayMatchBelow(name string, parts []string) bool {
	switch domain := p.domain + "/"; {
	case strings.HasPrefix(domain, name+"/"):
		return true
	case p.domain != "" && !strings.HasPrefix(name, domain):
		return false
	case !p.matchPath:
		return true
	}
	parts = parts[p.depth:]
	for i, part := range p.parts[:min(len(p.parts), len(parts))] {
		if part == "**" {
			return true
		}
		if ok, _ := filepath.Match(part, parts[i]); !ok {
			return false
		}
	}
	return len(p.parts) > len(parts)
}

// View returns a view of tree without ignored files and directories. Opening an ignored path fails
// with [fs.ErrNotExist].
//
// An ignored directory stays visible only if some rule may include something below it. An archive
// of the view has no entry for the directory itself if the view says so:
//
//	o, ok := view.(interface{ Omits(dir string) bool })
//	leaveOut := ok && o.Omits(dir)
//
// After ctx ends, the view fails with its cause. The view keeps no state of its own and is as safe
// for concurrent use as tree is. It implements [fs.ReadDirFS], [fs.StatFS] and [fs.ReadLinkFS]
// whatever tree implements.
func (r *Rules) View(ctx context.Context, tree fs.FS) fs.FS {
	return view{ctx: ctx, tree: tree, rules: r}
}

// A view is tree without what rules ignore.
type view struct {
	ctx   context.Context
	tree  fs.FS
	rules *Rules
}

// An omitter is a tree that shows some directories only because of the entries below them. An
// archive must not have entries for these directories.
type omitter interface{ Omits(dir string) bool }

// Omits reports whether the rules ignore the directory dir.
func (v view) Omits(dir string) bool {
	_, ignored, err := v.rules.Match(v.ctx, dir, true)
	return ignored && err == nil // the error is reported when dir is read
}

// shows reports whether the view shows name. It asks the tree for the type only if the rules treat
// files and directories differently.
func (v view) shows(name string) (bool, error) {
	if name == "." {
		return true, context.Cause(v.ctx)
	}
	by, err := v.rules.judge(v.ctx, name)
	if err != nil {
		return false, err
	}
	file := !by.file.excludes()
	dir, err := v.rules.reveals(v.ctx, name, by.dir)
	if err != nil || file == dir {
		return file, err
	}
	info, err := fs.Lstat(v.tree, name)
	if err != nil {
		return false, err
	}
	if info.IsDir() {
		return dir, nil
	}
	return file, nil
}

// callIfShown calls do with the tree and name if the view shows name.
func callIfShown[T any](v view, op, name string, do func(fs.FS, string) (T, error)) (result T, err error) {
	shown := false
	if !validPath(name) {
		err = fs.ErrInvalid
	} else if shown, err = v.shows(name); err == nil && !shown {
		err = fs.ErrNotExist
	}
	if err != nil {
		return result, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return do(v.tree, name)
}

// Open implements [fs.FS].
func (v view) Open(name string) (fs.File, error) {
	f, err := callIfShown(v, "open", name, fs.FS.Open)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.IsDir() {
		return f, nil
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return &dirFile{fsys: v, name: name}, nil
}

// Stat implements [fs.StatFS].
func (v view) Stat(name string) (fs.FileInfo, error) { return callIfShown(v, "stat", name, fs.Stat) }

// Lstat implements [fs.ReadLinkFS].
func (v view) Lstat(name string) (fs.FileInfo, error) { return callIfShown(v, "lstat", name, fs.Lstat) }

// ReadLink implements [fs.ReadLinkFS].
func (v view) ReadLink(name string) (string, error) {
	return callIfShown(v, "readlink", name, fs.ReadLink)
}

// ReadDir implements [fs.ReadDirFS].
func (v view) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := callIfShown(v, "readdir", name, fs.ReadDir)
	if err != nil {
		return nil, err
	}
	list := make([]fs.DirEntry, 0, len(entries))
	for _, e := range entries {
		full := e.Name()
		if name != "." {
			full = name + "/" + full
		}
		by, err := v.rules.judge(v.ctx, full)
		shown := !by.file.excludes()
		if err == nil && e.IsDir() {
			shown, err = v.rules.reveals(v.ctx, full, by.dir)
		}
		switch {
		case err != nil:
			return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
		case shown:
			list = append(list, e)
		default:
			v.rules.ignoredAny.Store(true)
		}
	}
	return list, nil
}
