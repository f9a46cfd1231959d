package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/azure"
	"github.com/headgate-io/headgate/bucket/gcs"
	"github.com/headgate-io/headgate/bucket/s3"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/oci/notation"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/aws"
	azurelogin "github.com/headgate-io/headgate/source/login/azure"
	"github.com/headgate-io/headgate/source/login/gcp"
	"github.com/headgate-io/headgate/source/login/github"
)

// origins returns what this command can fetch. What Sigstore says of its
// authorities is kept in the directory cache, in memory if it is "".
func (p *program) origins(cache string) headgate.Origins {
	sigstore := ""
	if cache != "" {
		sigstore = filepath.Join(cache, "sigstore")
	}
	return headgate.Origins{
		Buckets: map[string]bucket.Provider{
			"generic": s3.Connect,
			"aws":     s3.Connect,
			"gcp":     gcs.Connect,
			"azure":   azure.Connect,
		},
		Verifiers: map[string]oci.Technology{
			"cosign":   cosign.New(cosign.Config{Cache: sigstore}),
			"notation": notation.New,
		},
		Logins: map[string]source.LoginFunc{
			"aws":    aws.New(nil, p.lookup).Login,
			"azure":  azurelogin.New(nil, p.lookup).Login,
			"gcp":    gcp.New(nil, p.lookup).Login,
			"github": github.New(nil).Login,
		},
	}
}

// A session is what the commands on sources share.
type session struct {
	flags *sourceFlags
	set   *source.Set
	bad   error // objects that did not decode; the others go on
	typed bool  // the object is what a URL and flags say
	env   source.Env

	origins headgate.Origins // of commands without a cache
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
	s := &session{flags: f, set: new(source.Set), origins: p.origins("")}
	var err error
	if s.env, err = p.environment(f, s.set); err != nil {
		return nil, err
	}
	s.bad = p.load(s.set, f.files, f.quiet)
	return s, nil
}

// environment returns what origins get, once the flags about it are checked. The
// library adds what belongs to a store, and a controller its Secrets. documents may
// be read later; nil leaves Secrets out.
func (p *program) environment(f *sourceFlags, documents *source.Set) (env source.Env, err error) {
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
	if env.Keychain, err = p.keychain(f.docker); err != nil {
		return env, err
	}
	env.Limits.Bytes = f.maxBytes
	if documents != nil {
		env.Secrets, err = p.secretPlaces(f.secrets, documents)
	}
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

// load reads documents into set and prints their warnings, unless it is to be
// quiet. The error joins the defects; good objects are in the set all the same.
func (p *program) load(set *source.Set, files []string, quiet bool) error {
	var errs []error
	for _, name := range files {
		errs = append(errs, p.loadFile(set, name))
	}
	if quiet {
		return errors.Join(errs...)
	}
	for _, w := range set.Warnings {
		fmt.Fprintf(p.stderr, "warning: %v\n", w)
	}
	if set.Skipped > 0 {
		fmt.Fprintf(p.stderr, "skipped %d documents of other kinds\n", set.Skipped)
	}
	return errors.Join(errs...)
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

// options returns what the library is to do with the objects named.
func (s *session) options(named []source.Object) headgate.Options {
	return headgate.Options{Objects: named, Origins: s.origins, Env: s.env, Parallel: s.flags.parallel}
}

// within bounds ctx by --timeout.
func (s *session) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.flags.timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, s.flags.timeout, fmt.Errorf("not done within --timeout %s", s.flags.timeout))
}
