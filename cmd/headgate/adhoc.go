package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

// prepare opens a session and returns the objects that the command works on:
// those of -f that args name, or the one that a URL stands for.
func (p *program) prepare(ctx context.Context, f *sourceFlags, args []string) (*session, []source.Object, error) {
	if len(f.files) == 0 && len(args) > 1 && f.docker == dockerDefault {
		return nil, nil, strayFile(len(args), 1)
	}
	s, err := p.open(f)
	if err != nil {
		return nil, nil, err
	}
	if err := f.flaws(len(f.files) == 0); err != nil {
		return nil, nil, err
	}
	if len(f.files) == 0 {
		if len(args) != 1 || !strings.Contains(args[0], "://") {
			return nil, nil, usage("give objects with -f, or one URL such as https://HOST/PATH, ssh://USER@HOST/PATH, oci://HOST/PATH or s3://BUCKET")
		}
		obj, err := s.adhoc(ctx, args[0])
		if err != nil {
			return nil, nil, err
		}
		s.typed = true
		return s, []source.Object{obj}, nil
	}
	if err := f.unused(); err != nil {
		return nil, nil, err
	}
	objects, err := s.selected(args)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case len(objects) == 0 && s.bad != nil:
		return nil, nil, &exitError{exitUsage, s.bad}
	case len(objects) == 0:
		return nil, nil, usage("no objects in %s", strings.Join(f.files, ", "))
	}
	return s, objects, nil
}

// byFlag names the fields of a spec by the flags that say the same of a URL.
var byFlag = strings.NewReplacer(
	"spec.insecure", "--insecure", "spec.secretRef", "--secret-ref", "spec.certSecretRef", "--cert-secret-ref", "spec.proxySecretRef", "--proxy-secret-ref",
	"spec.provider", "--provider", "spec.endpoint", "--endpoint", "spec.region", "--region", "spec.chart", "--chart", "spec.version", "--version",
	"spec.valuesFiles", "--values-file",
)

// adhoc returns the object that a URL stands for.
func (s *session) adhoc(ctx context.Context, arg string) (source.Object, error) {
	if s.flags.chart != "" {
		return s.adhocChart(arg)
	}
	scheme := schemeOf(arg)
	if err := s.flags.fit(scheme); err != nil {
		return nil, err
	}
	if _, ok := stores[scheme]; ok {
		return s.adhocBucket(arg, scheme)
	}
	if scheme == "oci" {
		return s.adhocOCI(arg)
	}
	if err := unfinished(arg, "@"); err != nil {
		return nil, err
	}
	return s.adhocGit(ctx, arg)
}

// adhocGit returns the GitRepository that URL[@REF] stands for.
func (s *session) adhocGit(ctx context.Context, arg string) (source.Object, error) {
	address, ref := splitRef(arg)
	u, err := url.Parse(address)
	if err != nil {
		return nil, usage("%q is no URL", address)
	}
	g := &source.GitRepository{Spec: source.GitRepositorySpec{
		URL: address, Provider: s.flags.provider, Interval: source.Duration(time.Minute), Ref: refOf(ref),
		SecretRef: reference(s.flags.secret), ProxySecretRef: reference(s.flags.proxy),
	}}
	g.Kind = "GitRepository"
	words := lastWords(u)
	source.Default(g)
	if err := s.setName(g, words, s.originOf(g), true); err != nil {
		return nil, err
	}
	if g.Spec.SecretRef == nil && (u.Scheme == "ssh" || g.Spec.Provider == "github") {
		g.Spec.SecretRef = reference(nameFor(words, 63))
	}
	if g.Spec.Ref == nil {
		if g.Spec.Ref, err = s.branchOrTag(ctx, *g, ref); err != nil {
			return nil, err
		}
	}
	if err := source.Validate(g); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return g, nil
}

// unfinished refuses a URL that ends in one of marks: what should follow may be
// a variable that is not set, and does not mean the default.
func unfinished(arg, marks string) error {
	if last := arg[len(arg)-1:]; strings.Contains(marks, last) {
		return usage("%s: nothing follows the %q at its end: say what is wanted, or leave it out", redact.String(arg), last)
	}
	return nil
}

// splitRef cuts URL@REF at the first @ of the path, so that neither user
// information nor a REF with slashes is torn.
func splitRef(arg string) (address, ref string) {
	start := strings.Index(arg, "://") + 3
	slash := strings.IndexByte(arg[start:], '/')
	if slash < 0 {
		return arg, ""
	}
	start += slash
	at := strings.IndexByte(arg[start:], '@')
	if at < 0 {
		return arg, ""
	}
	return arg[:start+at], arg[start+at+1:]
}

// refOf tells from its form what REF is; nil means a branch or a tag.
func refOf(ref string) *source.GitRepositoryRef {
	hex := strings.Trim(ref, "0123456789abcdef") == ""
	switch {
	case ref == "":
		return &source.GitRepositoryRef{Name: "HEAD"}
	case strings.HasPrefix(ref, "refs/") || ref == "HEAD":
		return &source.GitRepositoryRef{Name: ref}
	case hex && (len(ref) == 40 || len(ref) == 64):
		return &source.GitRepositoryRef{Commit: ref}
	case strings.ContainsAny(ref, "^~<>=*| "):
		return &source.GitRepositoryRef{SemVer: ref}
	}
	return nil
}

// branchOrTag asks the origin what ref is; a branch comes first, as git has it.
func (s *session) branchOrTag(ctx context.Context, g source.GitRepository, ref string) (*source.GitRepositoryRef, error) {
	exists := func(choice *source.GitRepositoryRef) error {
		g.Spec.Ref = choice
		limited, cancel := context.WithTimeout(ctx, time.Duration(g.Spec.Timeout))
		defer cancel()
		from, err := s.origins.New(&g, s.env)
		if err == nil {
			_, _, err = from.Resolve(limited, nil)
		}
		return err
	}
	for _, choice := range []*source.GitRepositoryRef{{Branch: ref}, {Tag: ref}} {
		err := exists(choice)
		if err == nil {
			return choice, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, failed(fmt.Errorf("%s: %w", g.Spec.URL, err))
		}
	}
	// What does not exist may be the repository, or a Secret.
	if err := exists(&source.GitRepositoryRef{Name: "HEAD"}); err != nil {
		return nil, failed(fmt.Errorf("%s: %w", g.Spec.URL, err))
	}
	return nil, failed(fmt.Errorf("%s has no branch and no tag %q", g.Spec.URL, ref))
}
