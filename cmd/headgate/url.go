package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

// urlForm say what the object of a URL is called, and what of it is meant. Each
// stands for a field that an object would have.
type urlForm struct {
	name                      string
	branch, tag, semver, path string
	chart, version            string
	values                    []string
	changed                   func(flag string) bool // whether it was given, be it empty
}

func (f *urlForm) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.name, "name", "", "`NAME` of the object that a URL stands for; default made of the URL, with a hash of it")
	fl.StringVar(&f.branch, "branch", "", "`BRANCH` of the Git repository at a URL, as spec.ref.branch")
	fl.StringVar(&f.tag, "tag", "", "`TAG` of the Git repository or of the repository in a registry at a URL, as spec.ref.tag")
	fl.StringVar(&f.semver, "semver", "", "`RANGE` of versions among the tags there, as spec.ref.semver")
	fl.StringVar(&f.path, "path", "", "`DIR` of the Git repository at a URL: only what is below it, as spec.sparseCheckout")
	fl.StringVar(&f.chart, "chart", "", "`NAME` of a chart in the repository of charts at a URL (https, http or oci), as spec.chart")
	fl.StringVar(&f.version, "version", "", "version or `RANGE` of --chart, as spec.version; default the newest that is no pre-release")
	fl.StringArrayVar(&f.values, "values-file", nil, "`FILE` in --chart with values that replace those of its values.yaml, as one of spec.valuesFiles; repeatable, the last wins")
	f.changed = fl.Changed
}

// check refuses flags that go with nothing, or are empty: what should be in them
// may be a variable that is not set, and does not mean the default.
func (f *urlForm) check(typed bool) error {
	if f.changed == nil {
		return nil // a command without them
	}
	given := map[string]string{"name": f.name, "branch": f.branch, "tag": f.tag, "semver": f.semver, "path": f.path, "chart": f.chart, "version": f.version, "values-file": "given"}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		switch ofChart := name == "version" || name == "values-file"; {
		case !f.changed(name):
		case !typed && (ofChart || name == "chart"):
			return usage("--%s goes with a URL: name the PkgChart objects of -f", name)
		case !typed:
			return usage("--%s goes with a URL: the objects of -f have names", name)
		case given[name] == "":
			return usage("--%s must not be empty: say what is wanted, or leave it out", name)
		case ofChart && f.chart == "":
			return usage("--%s goes with --chart", name)
		}
	}
	return nil
}

// byFlag names the fields of a spec by the flags that say the same of a URL.
var byFlag = strings.NewReplacer(
	"spec.insecure", "--insecure", "spec.secretRef", "--secret-ref", "spec.certSecretRef", "--cert-secret-ref", "spec.proxySecretRef", "--proxy-secret-ref",
	"spec.provider", "--provider", "spec.endpoint", "--endpoint", "spec.region", "--region", "spec.chart", "--chart", "spec.version", "--version",
	"spec.valuesFiles", "--values-file",
)

var (
	scpForm     = regexp.MustCompile(`^([\w.-]+@)?([\w.-]{2,}|\[[\da-fA-F:]+\]):([^/].*|/.*)$`) // one letter is a drive
	chartFile   = regexp.MustCompile(`^(https?://.+)/([^/]+?)-(v?\d+\.\d+\.[^/]*)\.tgz$`)
	minute      = source.Duration(time.Minute)
	errNotLocal = "%q is neither a URL nor a directory that is there; give objects with -f, or URLs such as https://HOST/PATH"
)

// objectOf returns the object that an argument stands for: a URL, a path of a
// repository or directory of this machine, or USER@HOST:PATH.
func (s *session) objectOf(ctx context.Context, arg string) (source.Object, error) {
	local, isFile := strings.CutPrefix(arg, "file://")
	scp := scpForm.FindStringSubmatch(arg)
	switch m := chartFile.FindStringSubmatch(arg); {
	case m != nil && s.flags.chart == "":
		f := *s.flags
		f.chart, f.version = m[2], m[3]
		alone := *s
		alone.flags = &f
		return alone.chartOf(m[1])
	case isFile, !strings.Contains(arg, "://") && (scp == nil || isDir(arg)):
		if !isDir(local) {
			return nil, usage(errNotLocal, arg)
		}
		dir, err := filepath.Abs(local)
		if err != nil {
			return nil, err
		}
		arg = strings.ReplaceAll((&url.URL{Scheme: "http", Host: "localhost", Path: filepath.ToSlash(dir)}).String(), "@", "%40")
		s.env.Local[arg] = dir
	case !strings.Contains(arg, "://"):
		arg = "ssh://" + scp[1] + scp[2] + "/" + strings.TrimPrefix(scp[3], "/")
	}
	if last := arg[len(arg)-1:]; last == "@" || last == ":" && strings.HasPrefix(arg, ociScheme) {
		return nil, usage("%s: nothing follows the %q at its end: say what is wanted, or leave it out", redact.String(arg), last)
	}
	if s.flags.chart != "" {
		return s.chartOf(arg)
	}
	switch scheme := schemeOf(arg); scheme {
	case "s3", "gs", "azblob":
		return s.bucketOf(arg, scheme)
	case "oci":
		return s.registryOf(arg)
	}
	return s.gitOf(ctx, arg)
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// complete fills in what is left of an object: its defaults, and its name, as
// --name says or made of words and a hash of what tells its origin from others. A
// name under which another URL is saved is refused: a failure would leave the
// artifact of that one in place.
func (s *session) complete(obj source.Object, kind, words, name string) error {
	head := obj.Head()
	head.Kind = kind
	source.Default(obj)
	id := s.identity(obj)
	if head.Metadata.Name = name; name == "" {
		head.Metadata.Name = fmt.Sprintf("%s-%.5x", nameFor(words, 52), sha256.Sum256([]byte(id)))
	} else if ref := source.ReferenceTo(obj); s.flags.store != "" {
		saved, err := ledgerOf(s.flags.store).Object(ref)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return &exitError{codeOf(err), err}
		case s.identity(saved) != id:
			return usage("--name %s: %s has this name, and another URL: choose another name, or forget that one with headgate delete", name, sourceName(ref))
		}
	}
	if err := source.Validate(obj); err != nil {
		return &exitError{exitUsage, err}
	}
	return nil
}

// identity returns what tells the origin of an object from others, without
// credentials; of a chart with the name of its repository.
func (s *session) identity(obj source.Object) string {
	address := ""
	switch o := obj.(type) {
	case *source.GitRepository:
		address = o.Spec.URL
	case *source.OCIRepository:
		address = o.Spec.URL
	case *source.PkgRepository:
		address = o.Spec.URL
	case *source.Bucket:
		endpoint, _, _ := strings.Cut(o.Spec.Endpoint, "?") // a query is a signature
		address = endpoint + "/" + o.Spec.BucketName + "/" + o.Spec.Prefix
	case *source.PkgChart:
		return o.Spec.SourceRef.Name + "#" + o.Spec.Chart
	}
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	u.User = nil
	return u.String()
}

// nameFor makes the name of an object, of at most most bytes, from a text.
func nameFor(text string, most int) string {
	name := strings.Trim(regexp.MustCompile(`[^a-z0-9]`).ReplaceAllString(strings.ToLower(text), "-"), "-")
	if name = strings.Trim(name[:min(len(name), most)], "-"); name == "" {
		return "source"
	}
	return name
}

// lastWord returns the last element of the path of a URL.
func lastWord(u *url.URL) string { return strings.TrimSuffix(path.Base(u.Path), ".git") }

// gitOf returns the GitRepository that URL[@REF] stands for.
func (s *session) gitOf(ctx context.Context, arg string) (source.Object, error) {
	f := s.flags
	address, ref := splitRef(arg)
	u, err := url.Parse(address)
	if err != nil {
		return nil, usage("%q is no URL", redact.String(address))
	}
	g := &source.GitRepository{Spec: source.GitRepositorySpec{
		URL: address, Provider: f.provider, Interval: minute, SecretRef: reference(f.secret), ProxySecretRef: reference(f.proxy),
	}}
	if g.Spec.SecretRef == nil && (u.Scheme == "ssh" || f.provider == "github") {
		g.Spec.SecretRef = reference(nameFor(lastWord(u), 63))
	}
	if f.path != "" {
		g.Spec.SparseCheckout = []string{f.path}
	}
	hex := strings.Trim(ref, "0123456789abcdef") == ""
	switch named := (source.GitRepositoryRef{Branch: f.branch, Tag: f.tag, SemVer: f.semver}); {
	case named != (source.GitRepositoryRef{}) && ref != "":
		return nil, usage("%s: --branch, --tag and --semver exclude the %q in the URL", redact.String(address), "@"+ref)
	case named != (source.GitRepositoryRef{}):
		g.Spec.Ref = &named
	case ref == "":
		g.Spec.Ref = &source.GitRepositoryRef{Name: "HEAD"}
	case strings.HasPrefix(ref, "refs/") || ref == "HEAD":
		g.Spec.Ref = &source.GitRepositoryRef{Name: ref}
	case hex && (len(ref) == 40 || len(ref) == 64):
		g.Spec.Ref = &source.GitRepositoryRef{Commit: ref}
	case strings.ContainsAny(ref, "^~<>=*| "):
		g.Spec.Ref = &source.GitRepositoryRef{SemVer: ref}
	}
	if err := errors.Join(f.fit("git"), s.complete(g, "GitRepository", lastWord(u), f.name)); err != nil || g.Spec.Ref != nil {
		return g, err
	}
	return g, s.branchOrTag(ctx, g, ref)
}

// splitRef cuts URL@REF at the first @ of the path, so that neither user
// information nor a REF with slashes is torn.
func splitRef(arg string) (address, ref string) {
	start := strings.Index(arg, "://") + 3
	slash := strings.IndexByte(arg[start:], '/')
	if slash < 0 {
		return arg, ""
	}
	address, ref, _ = strings.Cut(arg[start+slash:], "@")
	return arg[:start+slash] + address, ref
}

// branchOrTag asks the origin what ref is; a branch comes first, as git has it.
// What does not exist may be the repository, or a Secret: then HEAD says so.
func (s *session) branchOrTag(ctx context.Context, g *source.GitRepository, ref string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Duration(g.Spec.Timeout))
	defer cancel()
	var err error
	for _, choice := range []*source.GitRepositoryRef{{Branch: ref}, {Tag: ref}, {Name: "HEAD"}} {
		g.Spec.Ref = choice
		from, wrong := s.origins.New(g, s.env)
		if err = wrong; err == nil {
			_, _, err = from.Resolve(ctx, nil)
		}
		switch {
		case err == nil && choice.Name == "":
			return nil
		case err == nil:
			return failed(fmt.Errorf("%s has no branch and no tag %q", redact.String(g.Spec.URL), ref))
		case !errors.Is(err, fs.ErrNotExist):
			return failed(fmt.Errorf("%s: %w", redact.String(g.Spec.URL), err))
		}
	}
	return failed(fmt.Errorf("%s: %w", redact.String(g.Spec.URL), err))
}

const ociScheme = "oci://"

// registryOf returns the OCIRepository that oci://HOST/PATH[:TAG][@DIGEST | @RANGE] stands for.
func (s *session) registryOf(arg string) (source.Object, error) {
	f := s.flags
	address, ref := splitRef(arg)
	tag, slash := f.tag, strings.LastIndexByte(address, '/')
	if colon := strings.LastIndexByte(address, ':'); colon > slash && slash > len(ociScheme) {
		address, tag = address[:colon], address[colon+1:]
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, usage("%q is no URL", redact.String(address))
	}
	o := &source.OCIRepository{Spec: source.OCIRepositorySpec{
		URL: address, Interval: minute, Ref: &source.OCIRepositoryRef{Tag: tag, SemVer: f.semver}, Provider: f.provider, Insecure: f.insecure,
		SecretRef: reference(f.secret), CertSecretRef: reference(f.cert), ProxySecretRef: reference(f.proxy),
	}}
	if strings.Contains(ref, ":") {
		o.Spec.Ref.Digest = ref
	} else if ref != "" {
		o.Spec.Ref.SemVer = ref
	}
	switch {
	case tag != "" && o.Spec.Ref.SemVer != "":
		return nil, usage("%s: a tag and a range of versions exclude each other", redact.String(arg))
	case f.branch != "" || f.path != "":
		return nil, usage("--branch and --path go with the URL of a Git repository")
	}
	return o, errors.Join(f.fit("oci"), s.complete(o, "OCIRepository", lastWord(u), f.name))
}

// An objectStore is what URLs of one scheme name buckets of.
type objectStore struct {
	form      string   // of URLs
	providers []string // that it can be read with, the default first
	endpoint  string   // without --endpoint; "" where the URL names it
}

var objectStores = map[string]objectStore{
	"s3":     {"s3://BUCKET[/PREFIX]", []string{"aws", "generic"}, "s3.amazonaws.com"},
	"gs":     {"gs://BUCKET[/PREFIX]", []string{"gcp"}, "storage.googleapis.com"},
	"azblob": {"azblob://HOST/CONTAINER[/PREFIX], or azblob://CONTAINER[/PREFIX] with --endpoint", []string{"azure"}, ""},
}

// azureURL matches the URLs of blob services of Azure.
var azureURL = regexp.MustCompile(`^https://([^/?#]*@)?[^/?#:]*(\.blob\.core\.(windows\.net|usgovcloudapi\.net|chinacloudapi\.cn)|\.blob\.storage\.azure\.net)(:[^/?#]*)?([/?#]|$)`)

// schemeOf returns the scheme by which the kind of a URL is known: that of Azure's
// own URLs is azblob.
func schemeOf(arg string) string {
	if azureURL.MatchString(arg) {
		return "azblob"
	}
	scheme, _, _ := strings.Cut(arg, "://")
	return scheme
}

// bucketOf returns the Bucket that a URL stands for.
func (s *session) bucketOf(arg, scheme string) (source.Object, error) {
	at, f := objectStores[scheme], s.flags
	provider := f.provider
	switch {
	case provider == "" && f.endpoint != "":
		provider = at.providers[len(at.providers)-1]
	case provider == "":
		provider = at.providers[0]
	case !slices.Contains(at.providers, provider):
		return nil, usage("--provider %s does not go with %s: want %s", provider, at.form, strings.Join(at.providers, " or "))
	}
	b := &source.Bucket{Spec: source.BucketSpec{
		Provider: provider, Region: f.region, Insecure: f.insecure, Interval: minute, Timeout: source.Duration(s.timeout),
		SecretRef: reference(f.secret), CertSecretRef: reference(f.cert), ProxySecretRef: reference(f.proxy),
	}}
	if !at.locate(arg, f, &b.Spec) {
		return nil, usage("%s: want %s; credentials go into the Secret of --secret-ref", redact.String(arg), at.form)
	}
	return b, errors.Join(f.fit(scheme), s.complete(b, "Bucket", b.Spec.BucketName+"/"+b.Spec.Prefix, f.name))
}

// locate reads a URL. Those of schemes of their own are two or three words,
// without escapes; one with a user or a query, which may be secret, is none.
func (at objectStore) locate(arg string, f *sourceFlags, spec *source.BucketSpec) bool {
	scheme, rest, _ := strings.Cut(arg, "://")
	endpoint := f.endpoint
	switch {
	case scheme == "https":
		u, err := url.Parse(arg)
		if err != nil || u.User != nil || u.Fragment != "" || endpoint != "" {
			return false
		}
		endpoint, rest = (&url.URL{Scheme: "https", Host: u.Host, RawQuery: u.RawQuery}).String(), strings.TrimPrefix(u.Path, "/")
	case strings.ContainsAny(rest, "?#"):
		return false
	case endpoint == "" && at.endpoint == "":
		endpoint, rest, _ = strings.Cut(rest, "/")
		if endpoint = "https://" + endpoint; f.insecure {
			endpoint = "http" + strings.TrimPrefix(endpoint, "https")
		}
	case endpoint == "":
		endpoint = at.endpoint
	}
	spec.Endpoint = endpoint
	spec.BucketName, spec.Prefix, _ = strings.Cut(rest, "/")
	return endpoint != "" && spec.BucketName != "" && !strings.Contains(spec.BucketName, "@")
}

// chartOf returns the PkgChart that --chart means in the repository at a URL. Its
// PkgRepository is among the objects of the session.
func (s *session) chartOf(arg string) (source.Object, error) {
	repo, err := s.repositoryOf(arg)
	if err != nil {
		return nil, err
	}
	f := s.flags
	c := &source.PkgChart{Spec: source.PkgChartSpec{
		Chart: f.chart, Version: f.version, ValuesFiles: f.values, Interval: minute,
		SourceRef: source.LocalChartSourceReference{Kind: repo.Kind, Name: repo.Metadata.Name},
	}}
	if err := s.complete(c, "PkgChart", f.chart, f.name); err != nil {
		return nil, err
	}
	s.set.Objects = append(s.set.Objects, repo, c)
	return c, nil
}

// repositoryOf returns the PkgRepository that a URL stands for.
func (s *session) repositoryOf(arg string) (*source.PkgRepository, error) {
	u, err := url.Parse(arg)
	if err != nil {
		return nil, usage("%q is no URL", redact.String(arg))
	}
	f, sort := s.flags, "index"
	r := &source.PkgRepository{Spec: source.PkgRepositorySpec{
		URL: arg, Type: source.RepositoryIndex, Interval: minute, Timeout: source.Duration(s.timeout), SecretRef: reference(f.secret), CertSecretRef: reference(f.cert),
	}}
	switch u.Scheme {
	case "http", "https":
	case "oci":
		sort, r.Spec.Type, r.Spec.Provider, r.Spec.Insecure = "charts", source.RepositoryOCI, f.provider, f.insecure
	default:
		return nil, usage("%s: a repository of charts is at https://HOST/PATH, http://HOST/PATH or oci://HOST/PATH; for a chart in another source write objects, and give them with -f", redact.String(arg))
	}
	return r, errors.Join(f.fit(sort), s.complete(r, "PkgRepository", u.Hostname()+strings.TrimSuffix(u.Path, "/"), ""))
}
