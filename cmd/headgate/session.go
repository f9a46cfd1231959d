package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/azure"
	"github.com/headgate-io/headgate/bucket/gcs"
	"github.com/headgate-io/headgate/bucket/s3"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/oci/notation"
	"github.com/headgate-io/headgate/source"
)

// origins is the table of what this command can fetch: kind → constructor.
var origins = map[string]func(source.Object, source.Env, map[string]oci.Technology) source.Origin{
	"GitRepository": func(o source.Object, env source.Env, _ map[string]oci.Technology) source.Origin {
		return git.New(o.(*source.GitRepository), env)
	},
	"Bucket": func(o source.Object, env source.Env, _ map[string]oci.Technology) source.Origin {
		return bucket.New(o.(*source.Bucket), env, providers)
	},
	"OCIRepository": func(o source.Object, env source.Env, t map[string]oci.Technology) source.Origin {
		return oci.New(o.(*source.OCIRepository), env, t)
	},
	"PkgRepository": func(o source.Object, env source.Env, _ map[string]oci.Technology) source.Origin {
		return chart.NewRepository(o.(*source.PkgRepository), env)
	},
	"PkgChart": func(o source.Object, env source.Env, t map[string]oci.Technology) source.Origin {
		return chart.New(o.(*source.PkgChart), env, t)
	},
}

// newOrigin returns the origin of obj.
func newOrigin(obj source.Object, env source.Env, t map[string]oci.Technology) (source.Origin, error) {
	construct, ok := origins[obj.Head().Kind]
	if !ok {
		return nil, unfetchable(obj.Head().Kind)
	}
	return construct(obj, env, t), nil
}

// providers is the table of what buckets can be read with: spec.provider → driver.
var providers = map[string]bucket.Provider{
	"generic": s3.Connect,
	"aws":     s3.Connect,
	"gcp":     gcs.Connect,
	"azure":   azure.Connect,
}

// technologies returns the table of what signatures of OCI artifacts can be
// verified with. What Sigstore says of its authorities is kept in the directory
// cache, in memory when it is "".
func technologies(cache string) map[string]oci.Technology {
	return map[string]oci.Technology{
		"cosign":   cosign.New(cosign.Config{Cache: cache}),
		"notation": notation.New,
	}
}

// A session is what the commands on sources share.
type session struct {
	flags *sourceFlags
	set   *source.Set
	bad   error // objects that did not decode; the others go on
	typed bool  // the object is what a URL and flags say
	env   source.Env

	technologies map[string]oci.Technology
}

// open reads the objects and prepares their environment.
func (p *program) open(f *sourceFlags) (*session, error) {
	if !slices.Contains(f.formats, f.output) {
		return nil, usage("-o %q: want %s", f.output, either(f.formats))
	}
	if f.parallel < 1 {
		return nil, usage("--parallel %d: want 1 or more", f.parallel)
	}
	if f.timeout < 0 {
		return nil, usage("--timeout %s: want a positive time, or 0 for none", f.timeout)
	}
	env, err := p.environment(f)
	if err != nil {
		return nil, err
	}
	set, bad := p.load(f.files, f.quiet)
	if env.Secrets, err = p.secretPlaces(f.secrets, set); err != nil {
		return nil, err
	}
	return &session{flags: f, set: set, bad: bad, technologies: technologies(""), env: env}, nil
}

// environment returns what origins get besides Secrets, once the flags about it are checked.
func (p *program) environment(f *sourceFlags) (env source.Env, err error) {
	if _, err := artifact.Algorithm(f.digest).New(); f.digest != "" && err != nil {
		return env, usage("--digest: %w", err)
	}
	if env.Local, err = localOrigins(f.from); err != nil {
		return env, err
	}
	if env.Proxy, err = p.proxyOf(); err != nil {
		return env, err
	}
	if env.Networks, err = source.ParseNetworks(f.networks...); err != nil {
		return env, usage("--allow-network: %w", err)
	}
	env.Login, env.Limits = p.login(), artifact.Limits{Bytes: f.maxBytes}
	env.Keychain, err = p.keychain(f.docker)
	return env, err
}

// secretPlaces returns where Secrets are looked up: documents, the directory
// of --secrets when there is one, the environment.
func (p *program) secretPlaces(dir string, documents *source.Set) (source.Secrets, error) {
	places := []source.Secrets{documents}
	if err := checkSecrets(dir); err != nil {
		return nil, err
	}
	if dir != "" {
		places = append(places, source.DirSecrets(dir))
	}
	return source.Chain(append(places, source.EnvSecrets(p.lookup))...), nil
}

// checkSecrets wants a directory, or "".
func checkSecrets(dir string) error {
	return checkDir("secrets", dir, "a directory of Secrets")
}

// checkDir wants a directory as the value of a flag, or "".
func checkDir(flag, dir, want string) error {
	if info, err := os.Stat(dir); dir != "" && (err != nil || !info.IsDir()) {
		return usage("--%s %q: want %s", flag, dir, want)
	}
	return nil
}

// localOrigins parses the values of --from.
func localOrigins(from []string) (map[string]string, error) {
	local := map[string]string{}
	for _, s := range from {
		// A URL may hold "=" in its query, a path is more likely not to.
		i := strings.LastIndexByte(s, '=')
		if i <= 0 || i == len(s)-1 {
			return nil, usage("--from %q: want URL=PATH", s)
		}
		path, err := filepath.Abs(s[i+1:])
		if err != nil {
			return nil, usage("--from %q: %w", s, err)
		}
		local[s[:i]] = path
	}
	return local, nil
}

// load reads documents and prints their warnings, unless it is to be quiet.
// The error joins the defects; good objects are in the set all the same.
func (p *program) load(files []string, quiet bool) (*source.Set, error) {
	set := new(source.Set)
	var errs []error
	for _, name := range files {
		errs = append(errs, p.loadFile(set, name))
	}
	if quiet {
		return set, errors.Join(errs...)
	}
	for _, w := range set.Warnings {
		fmt.Fprintf(p.stderr, "warning: %v\n", w)
	}
	if set.Skipped > 0 {
		fmt.Fprintf(p.stderr, "skipped %d documents of other kinds\n", set.Skipped)
	}
	return set, errors.Join(errs...)
}

func (p *program) loadFile(set *source.Set, name string) error {
	if name == "-" {
		return set.Decode("-", p.stdin)
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		root, err := os.OpenRoot(name)
		if err != nil {
			return err
		}
		defer root.Close()
		return set.DecodeFS(root.FS(), ".")
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return set.Decode(name, f)
}

// selected returns the objects that args name, all when there are none.
func (s *session) selected(args []string) ([]source.Object, error) {
	if len(args) == 0 {
		return s.set.Objects, nil
	}
	var objects []source.Object
	seen := map[source.Object]bool{}
	for _, arg := range args {
		found, err := s.set.Find(arg)
		if err != nil {
			// What did not decode may be what was named.
			return nil, &exitError{exitUsage, errors.Join(s.bad, err)}
		}
		for _, o := range found {
			if !seen[o] {
				seen[o] = true
				objects = append(objects, o)
			}
		}
	}
	return objects, nil
}

// stock gives origins the artifacts of other objects, which are in store or at
// their URL, and returns objects with those that they are made of behind them.
func (s *session) stock(ctx context.Context, objects []source.Object, store *artifact.Store) ([]source.Object, error) {
	s.env.Sources = &source.Inventory{
		Objects: s.set.Objects,
		Store:   store,
		Client:  s.client(),
	}
	return source.WithNeeds(ctx, objects, s.env.Sources)
}

// client fetches artifacts that somebody else publishes.
func (s *session) client() *artifact.Client {
	return &artifact.Client{MaxBytes: s.flags.maxBytes, Temp: s.env.Limits.Temp}
}

// alone returns obj as it is without the sources it is made of, once these are
// known to exist: what resolve and verify say is about obj itself.
func (s *session) alone(ctx context.Context, obj source.Object) (source.Object, error) {
	g, ok := obj.(*source.GitRepository)
	if !ok || len(g.Spec.Include) == 0 {
		return obj, nil
	}
	if _, err := source.Needed(ctx, g, &source.Inventory{Objects: s.set.Objects}); err != nil {
		return nil, fmt.Errorf("spec.include: %w", err)
	}
	g = ptr(*g)
	g.Spec.Include = nil
	return g, nil
}

// origin returns the origin of obj.
func (s *session) origin(obj source.Object) (source.Origin, error) {
	return newOrigin(obj, s.env, s.technologies)
}

// concealed returns err without the credentials that from has read: a server
// may have sent them back.
func concealed(err error, from source.Origin) error {
	if holder, ok := from.(interface{ Secrets() []string }); ok {
		return redact.Error(err, holder.Secrets()...)
	}
	return err
}

// An unfetchable is the error about a kind that origins lacks.
type unfetchable string

func (kind unfetchable) Error() string {
	return string(kind) + " objects are published by somebody else: headgate reads their status, and fetches nothing for them"
}
func (kind unfetchable) Is(target error) bool { return target == source.ErrInvalid }

// within bounds ctx by --timeout.
func (s *session) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.flags.timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, s.flags.timeout, fmt.Errorf("not done within --timeout %s", s.flags.timeout))
}
