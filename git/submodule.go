package git

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/config"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// The bounds of recursion. A commit cannot pin itself, so there are no cycles;
// repositories that keep pinning commits of each other exceed maxModuleDepth.
const (
	maxModules     = 1000 // submodules of one artifact
	maxModuleDepth = 10   // submodules in submodules
	moduleFetches  = 8    // at once
)

// A module is a repository at a path of the artifact: a submodule, or the one at
// spec.url.
type module struct {
	path   string // from the top of the artifact
	depth  int    // 0 for the one at spec.url
	url    *url.URL
	commit object.ID
	guard  *transport.NetworkGuard
}

// mountSubmodules mounts the submodules of the tree, at the commits that it pins. Without
// recursion each is an empty directory, as a checkout leaves it.
func (c *content) mountSubmodules(ctx context.Context) error {
	var err error
	if c.links, err = gitlinks(ctx, c.ownTree); err != nil {
		return err
	}
	if !c.origin.repo.Spec.RecurseSubmodules {
		for _, l := range c.links {
			c.tree.Link(l.path, nil)
		}
		return nil
	}
	base, err := parseURL(c.origin.repo.Spec.URL)
	if err != nil {
		return specError(fmt.Errorf("spec.url: %w", err))
	}
	var ignore artifact.Ignore
	if text := c.origin.repo.Spec.Ignore; text != nil {
		ignore.Extra = *text
	}
	rules, err := ignore.Compile(ctx, nil)
	if err != nil {
		return &source.StepError{Step: source.StepFetch, Reason: "SourceIgnoreError", Err: err}
	}
	r := &recursion{top: c, fetched: map[string]func() (*content, error){}, slots: make(chan struct{}, moduleFetches)}
	var inner context.Context
	r.group, inner = errgroup.WithContext(ctx)
	r.ignoreView = rules.View(inner, folders{})
	r.group.Go(func() error {
		return r.expand(inner, &module{path: ".", url: base, guard: transport.NewNetworkGuard(base, nil)}, c)
	})
	return r.group.Wait()
}

// A recursion finds and fetches submodules.
type recursion struct {
	top        *content
	ignoreView fs.FS // what spec.ignore leaves of a tree that has every folder
	group      *errgroup.Group
	slots      chan struct{} // for fetches

	mu      sync.Mutex
	count   int                                 // submodules found so far
	fetched map[string]func() (*content, error) // by URL and commit: equal submodules share it
	spooled int64                               // bytes of all packs that were fetched
	done    source.Progress
}

// expand links the submodules of m, whose content is c, into its tree, and starts to
// expand each of them in turn.
func (r *recursion) expand(ctx context.Context, m *module, c *content) error {
	var mappings map[string]*mapping
	var all []func() error
	for _, link := range c.links {
		sub := &module{path: path.Join(m.path, link.path), depth: m.depth + 1, commit: link.commit}
		// Rules of spec.ignore override all others, so no others matter here.
		_, err := fs.Stat(r.ignoreView, sub.path)
		if isAbsent(err) { // an excluded submodule may be invalid
			r.link(c, link, nil)
			continue
		}
		if err == nil && mappings == nil {
			mappings, err = readMappings(c.tree)
		}
		if err == nil {
			err = r.resolveURL(m, sub, mappings[link.path])
		}
		if err != nil {
			return fmt.Errorf("submodule %q: %s: %w: correct it in the repository, or leave the submodule out by spec.ignore",
				sub.path, path.Join(m.path, modulesFile), err)
		}
		if sub.url == nil {
			r.link(c, link, nil)
			continue
		}
		sub.guard = r.top.origin.guardOf(sub.url, m.guard)
		fetched := r.sharedFetch(ctx, sub)
		all = append(all, func() error {
			in, err := fetched()
			if err == nil {
				err = r.add(in)
			}
			if err != nil {
				return err
			}
			r.link(c, link, in.tree)
			return r.expand(ctx, sub, in)
		})
	}
	for _, enter := range all { // nothing is fetched before the URLs of all of them are resolved
		r.group.Go(enter)
	}
	return nil
}

func (r *recursion) link(c *content, at gitlink, sub *object.FS) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.tree.Link(at.path, sub)
}

// resolveURL sets the URL of sub, a submodule of m, from its mapping. The URL stays nil if
// the submodule is to be an empty directory.
func (r *recursion) resolveURL(m, sub *module, its *mapping) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	switch {
	case r.count > maxModules:
		return fmt.Errorf("there are more than %d submodules", maxModules)
	case its == nil:
		return errors.New("it maps no URL to this path")
	case its.defect != nil:
		return its.defect
	case its.skipped:
		r.top.notes = append(r.top.notes, fmt.Sprintf("submodule %q is an empty directory: its update is none in %s", sub.path, path.Join(m.path, modulesFile)))
		return nil
	case sub.depth > maxModuleDepth:
		return fmt.Errorf("the submodule is more than %d deep", maxModuleDepth)
	case len(sub.path) > object.MaxPath:
		return fmt.Errorf("the path has more than %d bytes", object.MaxPath)
	}
	if sub.url, err = moduleURL(m.url, its.url); err != nil {
		return fmt.Errorf("url of %.80q: %w", its.name, err)
	}
	return nil
}

// sharedFetch returns a function that fetches the commit of m. All places with the same
// URL and commit share one fetch.
func (r *recursion) sharedFetch(ctx context.Context, m *module) func() (*content, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := m.url.String() + " " + m.commit.String()
	if r.fetched[key] == nil {
		r.fetched[key] = sync.OnceValues(func() (*content, error) {
			c, err := r.fetch(ctx, m)
			if err != nil {
				err = r.top.origin.moduleError(m, err)
			}
			return c, err
		})
	}
	return r.fetched[key]
}

// fetch fetches the commit of m, within what is left of the limits.
func (r *recursion) fetch(ctx context.Context, m *module) (*content, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	o := r.top.origin
	up, err := o.openModuleUpstream(ctx, m)
	if err != nil {
		return nil, err
	}
	defer up.Close()
	if n, ok := up.(*remoteUpstream); ok {
		r.mu.Lock()
		if limit := cmp.Or(n.env.Limits.Bytes, maxBytes); limit > 0 {
			n.env.Limits.Bytes = max(1, limit-max(r.spooled, r.top.total.Bytes))
		}
		r.mu.Unlock()
		if n.env.Progress != nil {
			n.env.Progress = r.progress()
		}
	}
	c, err := o.fetchPinned(ctx, up, m.commit)
	if err != nil {
		return nil, err
	}
	c.ownTree, c.module = c.tree, m
	c.links, err = gitlinks(ctx, c.ownTree) // before any of them is linked
	r.mu.Lock()
	defer r.mu.Unlock()
	r.top.closers = append(r.top.closers, c)
	if pack, ok := c.db.(*packfile.Pack); ok {
		r.spooled += pack.Spooled()
	}
	for _, note := range c.notes {
		r.top.notes = append(r.top.notes, fmt.Sprintf("submodule %q: %s", m.path, note))
	}
	r.top.repositories[c.tree] = func(ctx context.Context) (upstream, error) { // LFS objects come from its own upstream
		up, err := o.openModuleUpstream(ctx, m)
		if err != nil {
			err = o.moduleError(m, err)
		}
		return up, err
	}
	return c, err
}

// add counts one more place where c is mounted. It returns an error if all trees
// together exceed the limits.
func (r *recursion) add(c *content) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.top.total = r.top.total.Plus(c.total)
	if err := checkTotals(r.top.total, r.top.origin.env.Limits); err != nil {
		return r.top.origin.moduleError(c.module, fmt.Errorf("with it, %w", err))
	}
	return nil
}

// progress returns a callback for one of several fetches. It reports the sum of all.
func (r *recursion) progress() func(source.Progress) {
	var last source.Progress
	return func(p source.Progress) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.done.Done += p.Done - last.Done
		r.done.Total += p.Total - last.Total
		last = p
		p.Phase, p.Done, p.Total = p.Phase+" of submodules", r.done.Done, r.done.Total
		r.top.origin.env.Progress(p)
	}
}

// fetchPinned fetches a commit that may be on no ref. If the server refuses to send
// it by its id, fetchPinned looks for it as git does: among the tips, then in the
// history of the default branch.
func (o *Origin) fetchPinned(ctx context.Context, up upstream, commit object.ID) (*content, error) {
	c, err := o.fetch(ctx, up, commit, commit, "", false)
	if !errors.Is(err, wire.ErrUnreachable) {
		return c, err
	}
	refs, err := up.refs(ctx, false, "refs/heads/", "refs/tags/")
	if err != nil {
		return nil, err
	}
	via := "HEAD"
	if i := slices.IndexFunc(refs, func(r object.Ref) bool { return r.Commit() == commit }); i >= 0 {
		via = refs[i].Name
	}
	return o.fetch(ctx, up, commit, commit, via, false)
}

// A gitlink is the path of a submodule in a tree and the commit that the tree pins.
type gitlink struct {
	path   string
	commit object.ID
}

// gitlinks returns the gitlinks in tree, sorted by the elements of their paths.
func gitlinks(ctx context.Context, tree fs.FS) (links []gitlink, err error) {
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && d.Type()&fs.ModeIrregular != 0 {
			_, id := object.EntryID(d)
			links = append(links, gitlink{name, id})
		}
		return err
	})
	return links, err
}

// folders reports a directory at every path. Only Stat works.
type folders struct{ embed.FS }

// Stat implements [fs.StatFS].
func (folders) Stat(string) (fs.FileInfo, error) { return fs.Stat(embed.FS{}, ".") }

// An access holds the URL and the credentials of a submodule.
type access struct {
	url   *url.URL // with the user information of spec.url, if that applies
	ref   *source.LocalReference
	field string // the field that names ref, "" if there are no credentials for the origin
}

// accessTo chooses the credentials for a submodule at u: those that
// spec.submoduleCredentials gives for its origin, those of spec.url on the same
// origin, and else none.
func (o *Origin) accessTo(u *url.URL) (access, error) {
	spec := &o.repo.Spec
	for i, c := range spec.SubmoduleCredentials {
		of, err := url.Parse(c.URL)
		if err != nil {
			return access{}, specError(fmt.Errorf("spec.submoduleCredentials[%d].url is no URL", i))
		}
		if transport.SameOrigin(of, u) {
			return access{u, &c.SecretRef, fmt.Sprintf("spec.submoduleCredentials[%d].secretRef", i)}, nil
		}
	}
	top, err := parseURL(spec.URL)
	switch {
	case err != nil:
		return access{}, err
	case !transport.SameOrigin(top, u):
		return access{u, nil, ""}, nil
	case u.User == nil:
		with := *u
		with.User = top.User
		u = &with
	}
	return access{u, spec.SecretRef, secretRefField}, nil
}

// openModuleUpstream returns the upstream of the submodule m. A local path can replace its
// URL whether that ends in .git or not.
func (o *Origin) openModuleUpstream(ctx context.Context, m *module) (upstream, error) {
	name := m.url.String()
	for _, spelling := range []string{name, strings.TrimSuffix(name, ".git"), name + ".git"} {
		if path, ok := o.env.Local[spelling]; ok {
			return openLocal(path, o.env.Limits)
		}
	}
	a, err := o.accessTo(m.url)
	if err != nil {
		return nil, err
	}
	if m.url.Scheme == "ssh" && a.field == "" {
		return nil, fmt.Errorf("%w: ssh needs a key, and the credentials of spec.url are not for this host: %s", wire.ErrAuth, credentialsHint(m.url))
	}
	return o.openUpstreamAt(ctx, a.url, a.ref, a.field, m.guard)
}

// guardOf returns the guard of a submodule at u. The repository with the guard from
// has named u, unless the spec did: then the spec has credentials for its origin, and
// from does not matter.
func (o *Origin) guardOf(u *url.URL, from *transport.NetworkGuard) *transport.NetworkGuard {
	if a, err := o.accessTo(u); err == nil && a.field != "" {
		from = nil
	}
	return transport.NewNetworkGuard(u, from)
}

// credentialsHint says how to give credentials for the origin of u.
func credentialsHint(u *url.URL) string {
	of := url.URL{Scheme: u.Scheme, Host: u.Host}
	keys := "username and password"
	if u.Scheme == "ssh" {
		keys = "identity and known_hosts"
	}
	return fmt.Sprintf("add an entry to spec.submoduleCredentials, with url %s and a secretRef to a Secret that holds %s", &of, keys)
}

// moduleError makes err a fetch error of the submodule m that keeps the reason of err. For
// the repository at spec.url it returns err unchanged.
func (o *Origin) moduleError(m *module, err error) error {
	if m.depth == 0 {
		return err
	}
	zone, narrower := errors.AsType[*transport.ZoneError](err)
	if a, accessErr := o.accessTo(m.url); accessErr == nil && a.field == "" && m.url.Scheme != "ssh" {
		switch {
		case errors.Is(err, wire.ErrAuth):
			err = fmt.Errorf("%w: no credentials were sent, for those of spec.url are not for this host: %s", err, credentialsHint(m.url))
		case errors.Is(err, wire.ErrNotFound):
			err = fmt.Errorf("%w: if it is private, %s", err, credentialsHint(m.url))
		case narrower && !zone.Metadata && m.guard.Is(zone.Host):
			err = fmt.Errorf("%w, or %s", err, credentialsHint(m.url))
		}
	}
	step, _ := errors.AsType[*source.StepError](stepError(source.StepFetch, err))
	return &source.StepError{Step: source.StepFetch, Reason: step.Reason, Err: fmt.Errorf("submodule %q at %s: %w", m.path, redact.URL(m.url), err)}
}

// modulesFile describes the submodules of a repository, in its root.
const modulesFile = ".gitmodules"

// maxModulesFile bounds the size of .gitmodules, in bytes.
const maxModulesFile = 1 << 20

// A mapping is what .gitmodules says about one submodule (gitmodules(5)). The path is
// only a key: the tree decides where a submodule is mounted.
type mapping struct {
	name    string
	path    string
	url     string
	skipped bool  // update = none: git leaves the submodule out
	defect  error // why the submodule cannot be used
}

// readMappings returns the mappings of tree, the root of a commit, by path. The map
// is empty if the file does not exist.
func readMappings(tree fs.FS) (map[string]*mapping, error) {
	f, err := tree.Open(modulesFile)
	if isAbsent(err) {
		return map[string]*mapping{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case info.Size() > maxModulesFile:
		return nil, fmt.Errorf("it has %d bytes: more than the limit of %d", info.Size(), maxModulesFile)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxModulesFile))
	if err != nil {
		return nil, err
	}
	return parseMappings(string(text))
}

// parseMappings parses the text of .gitmodules. A defect of one submodule is recorded
// in its mapping and does not affect the others.
func parseMappings(text string) (map[string]*mapping, error) {
	byName := map[string]*mapping{}
	var all []*mapping
	for e, err := range config.Parse(text) {
		if err != nil {
			return nil, err
		}
		if e.Section != "submodule" {
			continue
		}
		m := byName[e.Subsection]
		if m == nil {
			m = &mapping{name: e.Subsection, defect: checkModuleName(e.Subsection)}
			byName[e.Subsection], all = m, append(all, m)
		}
		m.set(e)
	}
	byPath := map[string]*mapping{}
	for _, m := range all {
		if other := byPath[m.path]; other != nil {
			other.setDefect("the submodules %.80q and %.80q have the same path", other.name, m.name)
		} else if m.path != "" {
			byPath[m.path] = m
		}
	}
	return byPath, nil
}

// set takes one variable. It ignores those that only matter to a clone with a
// worktree and a history (branch, shallow, ignore, fetchRecurseSubmodules).
func (m *mapping) set(e config.Entry) {
	switch e.Key {
	case "path":
		m.setOnce(&m.path, e)
	case "url":
		m.setOnce(&m.url, e)
	case "update":
		m.skipped = e.Value == "none"
		if strings.HasPrefix(e.Value, "!") {
			m.setDefect("line %d: update is a command, which is never run: remove it", e.Line)
		}
	}
}

// setOnce takes a variable that may be set only once, because two programs could use two
// different values.
func (m *mapping) setOnce(field *string, e config.Entry) {
	switch {
	case e.Value == "":
		m.setDefect("line %d: %s is empty", e.Line, e.Key)
	case *field != "":
		m.setDefect("line %d: %s is set a second time", e.Line, e.Key)
	default:
		*field = e.Value
	}
}

// setDefect records a defect, unless one is recorded already.
func (m *mapping) setDefect(format string, args ...any) {
	if m.defect == nil {
		m.defect = fmt.Errorf(format, args...)
	}
}

// checkModuleName returns an error for a name that git refuses, because git uses
// names as paths.
func checkModuleName(name string) error {
	if name == "" {
		return errors.New("its name in .gitmodules is empty")
	}
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == ".." {
			return fmt.Errorf("its name in .gitmodules, %.80q, leads out of a directory", name)
		}
	}
	return nil
}
