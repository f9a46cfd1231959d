package git

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"sync"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// The bounds of recursion. A commit cannot pin itself, so there are no cycles;
// repositories that keep pinning commits of each other run into the depth.
const (
	maxModules     = 1000 // submodules of one artifact
	maxModuleDepth = 10   // submodules in submodules
)

// submodules puts the submodules of tree into their places, at the commits it
// pins. They are found and fetched level by level: first those of the
// repository itself, then those in them.
func (c *content) submodules(ctx context.Context, tree fs.FS) (fs.FS, error) {
	if !c.origin.repo.Spec.RecurseSubmodules {
		return c.hollow(ctx, tree)
	}
	r, err := newRecursion(ctx, c)
	if err != nil {
		return nil, err
	}
	base, err := parseURL(c.origin.repo.Spec.URL)
	if err != nil {
		return nil, invalid(fmt.Errorf("spec.url: %w", err))
	}
	top := &module{path: ".", url: base, fence: transport.NewFence(base, nil), content: c, tree: tree}
	for level := []*module{top}; len(level) > 0; {
		var found []*module
		for _, m := range level {
			if found, err = r.find(ctx, found, m); err != nil {
				return nil, err
			}
		}
		if err := r.fetch(ctx, found); err != nil {
			return nil, err
		}
		level = found
	}
	return top.composed(), nil
}

// hollow puts an empty directory into the place of each submodule of tree: that
// is what a checkout without recursion leaves there.
func (c *content) hollow(ctx context.Context, tree fs.FS) (fs.FS, error) {
	if c.total.Modules == 0 {
		return tree, nil
	}
	links, err := gitlinks(ctx, tree)
	if err != nil {
		return nil, err
	}
	if len(links) == 0 {
		return tree, nil
	}
	subs := make(map[string]fs.FS, len(links))
	for _, l := range links {
		subs[l.path] = embed.FS{}
	}
	c.hollowed = links
	return graft{tree, subs}, nil
}

// tellHollow notes which submodules are empty directories of the artifact.
func (c *content) tellHollow(ctx context.Context) {
	var names []string
	for _, l := range c.hollowed {
		if _, ignored, err := c.rules.Match(ctx, l.path, true); !ignored && err == nil {
			names = append(names, l.path)
		}
	}
	if len(names) > 0 {
		c.notes = append(c.notes, "submodules are empty directories without spec.recurseSubmodules: "+enumerate(names, 3))
	}
}

// A module is a repository in its place: a submodule, or the one at spec.url.
type module struct {
	path   string // from the top of the artifact
	depth  int    // 0 for the one at spec.url
	url    *url.URL
	commit object.ID
	fence  *transport.Fence

	content *content // once it is fetched; equal submodules share it
	tree    fs.FS
	parts   map[string]*module // its submodules by path below it; nil for one that is empty
}

// composed returns the tree of m with its submodules.
func (m *module) composed() fs.FS {
	subs := make(map[string]fs.FS, len(m.parts))
	for at, part := range m.parts {
		if subs[at] = (embed.FS{}); part != nil { // the standard library's empty tree
			subs[at] = part.composed()
		}
	}
	if len(subs) == 0 {
		return m.tree
	}
	return graft{m.tree, subs}
}

// A pin says what a submodule holds, wherever it is.
type pin struct {
	url    string
	commit object.ID
}

func (m *module) pin() pin { return pin{m.url.String(), m.commit} }

// A recursion finds and fetches submodules.
type recursion struct {
	top   *content
	shown fs.FS // what spec.ignore leaves of a tree that has every folder
	count int   // submodules found so far

	fetched map[pin]*content

	mu      sync.Mutex // what the fetches of a level share
	spooled int64      // bytes of what was fetched, whatever of it is in the trees
	done    source.Progress
}

func newRecursion(ctx context.Context, c *content) (*recursion, error) {
	var ignore artifact.Ignore
	if text := c.origin.repo.Spec.Ignore; text != nil {
		ignore.Extra = *text
	}
	rules, err := ignore.Compile(ctx, nil)
	if err != nil {
		return nil, &source.StepError{Step: source.StepFetch, Reason: "SourceIgnoreError", Err: err}
	}
	return &recursion{top: c, shown: rules.View(ctx, folders{}), fetched: map[pin]*content{}}, nil
}

// leavesOut reports whether spec.ignore leaves out all that a submodule at name
// can hold. Its rules have the last word: no other need be asked.
func (r *recursion) leavesOut(name string) (bool, error) {
	_, err := fs.Stat(r.shown, name)
	if isAbsent(err) {
		return true, nil
	}
	return false, err
}

// find appends to found the submodules in m, which is fetched. Those that are
// left out are empty directories to the ignore rules, and need not be right.
func (r *recursion) find(ctx context.Context, found []*module, m *module) ([]*module, error) {
	links, err := gitlinks(ctx, m.content.own)
	if err != nil {
		return nil, r.top.origin.blame(m, err)
	}
	mappings := sync.OnceValues(func() (map[string]*mapping, error) {
		return readMappings(object.TreeFS(m.content.db, m.content.commit.Tree))
	})
	m.parts = make(map[string]*module, len(links))
	for _, link := range links {
		sub := &module{path: path.Join(m.path, link.path), depth: m.depth + 1, commit: link.commit}
		out, err := r.leavesOut(sub.path)
		if err != nil {
			return nil, stepError(source.StepFetch, err)
		}
		if out {
			m.parts[link.path] = nil
			continue
		}
		mapped, err := mappings()
		if err == nil {
			sub.url, err = r.admit(m, sub, mapped[link.path])
		}
		if err != nil {
			return nil, fmt.Errorf("submodule %q: %s: %w: correct it in the repository, or leave the submodule out by spec.ignore",
				sub.path, path.Join(m.path, modulesFile), err)
		}
		if sub.url == nil {
			m.parts[link.path] = nil
			continue
		}
		sub.fence = r.top.origin.fenceOf(sub.url, m.fence)
		m.parts[link.path], found = sub, append(found, sub)
	}
	return found, nil
}

// admit returns the URL of sub, a submodule of m, of which the mapping says
// its; nil when it is to stay away.
func (r *recursion) admit(m, sub *module, its *mapping) (*url.URL, error) {
	r.count++
	switch {
	case r.count > maxModules:
		return nil, fmt.Errorf("there are more than %d submodules", maxModules)
	case its == nil:
		return nil, errors.New("it maps no URL to this path")
	case its.defect != nil:
		return nil, its.defect
	case its.skipped:
		r.top.notes = append(r.top.notes, fmt.Sprintf("submodule %q is an empty directory: its update is none in %s", sub.path, path.Join(m.path, modulesFile)))
		return nil, nil
	case sub.depth > maxModuleDepth:
		return nil, fmt.Errorf("the submodule is more than %d deep", maxModuleDepth)
	case len(sub.path) > object.MaxPath:
		return nil, fmt.Errorf("the path has more than %d bytes", object.MaxPath)
	}
	u, err := moduleURL(m.url, its.url)
	if err != nil {
		return nil, fmt.Errorf("url of %.80q: %w", its.name, err)
	}
	return u, nil
}

// A gitlink is where a tree has a submodule, and at which commit.
type gitlink struct {
	path   string
	commit object.ID
}

// gitlinks returns the gitlinks in tree, sorted by the elements of their paths.
func gitlinks(ctx context.Context, tree fs.FS) ([]gitlink, error) {
	var links []gitlink
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || d.Type()&fs.ModeIrregular == 0 {
			return err
		}
		id, ok := object.EntryID(d)
		if !ok {
			return &fs.PathError{Op: "submodule", Path: name, Err: errors.ErrUnsupported}
		}
		links = append(links, gitlink{name, id})
		return nil
	})
	return links, err
}
