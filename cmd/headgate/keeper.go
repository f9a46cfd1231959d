package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// keeperFlags say where sources are kept.
type keeperFlags struct {
	serverFlags
	store string
}

func (f *keeperFlags) register(c *cobra.Command) {
	f.serverFlags.register(c, "the server, or unix:PATH of its socket; default whoever serves --store, or without it the variable HEADGATE_SERVER")
	registerStore(c, &f.store)
}

// A keeper is who has sources: a server that runs, or the files of a store.
type keeper interface {
	// sources returns those that one of refs selects, all when there are none,
	// in the order of kind, namespace and name; whole ones with their documents.
	sources(ctx context.Context, refs []source.Reference, whole bool) ([]api.Source, error)
	// defects returns what is wrong with documents, as far as somebody reads them.
	defects(ctx context.Context) ([]string, error)
	// watch calls each with the sources that one of refs selects, then that it
	// is synced, and then with what changes, until ctx ends or each returns an error.
	watch(ctx context.Context, refs []source.Reference, each func(api.Notice) error) error
	suspend(ctx context.Context, ref source.Reference, why api.Change) (api.Source, error)
	resume(ctx context.Context, ref source.Reference, why api.Change) (api.Source, error)
	// events returns events, the oldest first.
	events(ctx context.Context, q eventQuery) ([]api.Event, error)
	// follow calls each with them, and then with those that come.
	follow(ctx context.Context, q eventQuery, each func(api.Event) error) error
}

// aWhile is how long a server is asked to hold an answer back.
const aWhile = time.Minute

// openKeeper returns the keeper that the flags name: a server that runs, or else
// the files of the store; then it says so.
func (p *program) openKeeper(f *keeperFlags) (keeper, error) {
	k, err := p.serverOf(f)
	if k != nil || err != nil {
		return k, err
	}
	fmt.Fprintf(p.stderr, "headgate: no server keeps %s: its files are used\n", f.store)
	return &keptFiles{dir: f.store, ledger: ledgerOf(f.store), warn: p.warn}, nil
}

func (p *program) warn(err error) {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(p.stderr, "warning: %s\n", redact.String(strings.TrimRight(line, "\n")))
	}
}

// serverOf returns the server that the flags name, or that keeps the store; nil
// when no server does. The error is one of usage when there is neither a server
// nor a store.
func (p *program) serverOf(f *keeperFlags) (keeper, error) {
	named := f.serverFlags
	named.server = p.serverName(f)
	if path, isSocket := strings.CutPrefix(named.server, "unix:"); isSocket {
		return p.bySocket(f, path)
	}
	c, err := p.connect(&named, "", "")
	if err != nil {
		return nil, err
	}
	if c.base != "" {
		return &keptServer{&api.Client{Base: c.base, Token: c.token, HTTP: c.client, Lost: p.lost}, &f.serverFlags, p.caller()}, nil
	}
	if err := isStore(f.store); err != nil {
		return nil, err
	}
	note, err := keeperOf(f.store)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, failed(fmt.Errorf("--store %s: %w: act as the user that it belongs to, or name the server with --server URL", f.store, err))
	case err != nil:
		return nil, failed(fmt.Errorf("--store %s: %w", f.store, err))
	case note == nil:
		return nil, nil
	case note.PID == 0 || note.Socket != "" && !exists(note.Socket):
		return nil, failed(fmt.Errorf("the server of %s%s is about to start or to end: try again", f.store, note))
	case note.Socket == "":
		return nil, failed(fmt.Errorf("the server of %s%s has no socket: name it with --server", f.store, note))
	}
	return p.bySocket(f, note.Socket)
}

// serverName returns what names the server, "" when nothing does. A store that is
// named counts more than the variable.
func (p *program) serverName(f *keeperFlags) string {
	if f.server != "" || f.store != defaultStore {
		return f.server
	}
	name, _ := p.lookup("HEADGATE_SERVER")
	return name
}

func (p *program) bySocket(f *keeperFlags, path string) (keeper, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, failed(fmt.Errorf("--server: socket of the server: %w", err))
	}
	return &keptServer{&api.Client{Socket: path, Lost: p.lost}, &f.serverFlags, p.caller()}, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// lost tells that what a command follows is lost, or with nil that it is back.
func (p *program) lost(err error) {
	if err == nil {
		fmt.Fprintln(p.stderr, "headgate: the server is back")
		return
	}
	fmt.Fprintf(p.stderr, "headgate: %s: trying again until it is back\n", redact.String(err.Error()))
}

// caller returns who calls a server that does not know it by a credential.
func (p *program) caller() api.Change { return api.Change{By: p.user()} }

// user returns the name of who runs the command, "" when it has none.
func (p *program) user() string {
	name, _ := p.lookup("USER")
	if name == "" { // as of services, and in containers
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	return name
}

// isStore returns an error unless there is a store.
func isStore(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usage("there is no store %s, and no server is named: use --store DIR or --server URL", dir)
	case err != nil:
		return failed(err)
	case !info.IsDir():
		return usage("--store %s is no directory", dir)
	}
	return nil
}

// references reads the arguments of a command; kinds says whether one may name a kind alone.
func references(args []string, kinds bool) ([]source.Reference, error) {
	refs := make([]source.Reference, len(args))
	for i, arg := range args {
		ref, err := source.ParseReference(arg)
		if err != nil {
			return nil, &exitError{exitUsage, err}
		}
		if ref.Name == "" && !kinds {
			return nil, usage("%q names no object: write KIND/NAME or KIND/NAMESPACE/NAME", arg)
		}
		refs[i] = ref
	}
	return refs, nil
}

// selects reports whether one of refs selects other; none select all.
func selects(refs []source.Reference, other source.Reference) bool {
	for _, ref := range refs {
		if ref.Selects(other) {
			return true
		}
	}
	return len(refs) == 0
}

// sourceRef returns the reference of a source, whose document may spell its kind
// as either API group does.
func sourceRef(s api.Source) source.Reference {
	ref := source.Reference{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name}
	if kind, known := source.ParseKind(s.Kind); known {
		ref.Kind = kind
	}
	return ref
}

// argument names a source as its document does, in the form that commands take.
func argument(s api.Source) string {
	return sourceName(source.Reference{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name})
}

// argumentOf is argument of an object.
func argumentOf(obj source.Object) string {
	o := source.Involved(obj)
	return argument(api.Source{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name})
}

// one returns the only source that ref selects.
func one(ctx context.Context, k keeper, ref source.Reference) (api.Source, error) {
	found, err := k.sources(ctx, []source.Reference{ref}, false)
	switch {
	case err != nil:
		return api.Source{}, err
	case len(found) == 0:
		return api.Source{}, fmt.Errorf("%s: no such object", sourceName(ref))
	case len(found) > 1:
		return api.Source{}, usage("%s names %d objects: write KIND/NAMESPACE/NAME", sourceName(ref), len(found))
	}
	return found[0], nil
}

// sourceName writes a reference as commands take it.
func sourceName(ref source.Reference) string {
	parts := []string{strings.ToLower(ref.Kind)}
	for _, part := range []string{ref.Namespace, ref.Name} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/")
}
