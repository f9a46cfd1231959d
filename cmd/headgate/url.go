package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

// urlFlags set the fields of the objects that URLs define.
type urlFlags struct {
	provider, endpoint, region, secret, cert, proxy string
	insecure                                        bool

	name, branch, tag, semver, path, chart, version string
	values                                          []string
	given                                           *pflag.FlagSet
	makesObjects                                    bool // the command makes objects of URLs
	noHash                                          bool // names of objects have no hash
}

// A urlFlag is one of urlFlags.
type urlFlag struct {
	name, field string
	sorts       string // sorts of URLs that allow it; "" for all
	object      bool   // it is about objects of URLs, and must not be empty
	value       any    // *string, *bool or *[]string
	usage       string
}

func (f *urlFlags) all() []urlFlag {
	all := []urlFlag{
		{"provider", "spec.provider", "git oci s3 gs azblob charts", false, &f.provider, "`NAME` of the provider of the credentials for a URL: azure, aws, gcp, or github with the app in the Secret named after the repository; generic for an s3:// URL without one"},
		{"endpoint", "spec.endpoint", "s3 gs azblob", false, &f.endpoint, "`HOST[:PORT]` of the server of an s3:// URL, or the URL of the server of a gs:// or azblob:// URL"},
		{"region", "spec.region", "s3", false, &f.region, "`NAME` of the region of an s3:// URL"},
		{"secret-ref", "spec.secretRef", "git oci s3 gs azblob index charts", false, &f.secret, "`NAME` of the Secret with the credentials for a URL"},
		{"cert-secret-ref", "spec.certSecretRef", "oci s3 gs azblob index charts", false, &f.cert, "`NAME` of the Secret with ca.crt, or tls.crt and tls.key, for the URL of a registry, bucket or chart repository; for a Git repository put ca.crt into the Secret of --secret-ref"},
		{"proxy-secret-ref", "spec.proxySecretRef", "git oci s3 gs azblob", false, &f.proxy, "`NAME` of the Secret with the address of the proxy for a URL"},
		{"insecure", "spec.insecure", "oci s3 gs azblob charts", false, &f.insecure, "use http instead of https for the URL of a registry or bucket"},
		{"name", "metadata.name", "", true, &f.name, "`NAME` of the object of a URL; default one made of the URL"},
		{"branch", "spec.ref.branch", "git", true, &f.branch, "`BRANCH` of the Git repository at a URL"},
		{"tag", "spec.ref.tag", "git oci", true, &f.tag, "`TAG` of the Git repository or artifact at a URL"},
		{"semver", "spec.ref.semver", "git oci", true, &f.semver, "`RANGE` of versions, of which the newest tag at a URL is taken"},
		{"path", "spec.sparseCheckout", "git", true, &f.path, "only the directory `DIR` of the Git repository at a URL"},
		{"chart", "spec.chart", "index charts", true, &f.chart, "`NAME` of a chart in the chart repository at a URL (https, http or oci)"},
		{"version", "spec.version", "index charts", true, &f.version, "version or `RANGE` of versions of --chart; default the newest that is not a pre-release"},
		{"values-file", "spec.valuesFiles", "index charts", true, &f.values, "`FILE` in --chart to use in place of its values.yaml; repeatable, the last one wins"},
	}
	return slices.DeleteFunc(all, func(flag urlFlag) bool { return flag.object && !f.makesObjects })
}

// register adds the flags. If objects is set, it includes those about objects.
func (f *urlFlags) register(c *cobra.Command, objects bool) {
	f.given, f.makesObjects = c.Flags(), objects
	for _, flag := range f.all() {
		switch value := flag.value.(type) {
		case *string:
			f.given.StringVar(value, flag.name, "", flag.usage)
		case *bool:
			f.given.BoolVar(value, flag.name, false, flag.usage)
		case *[]string:
			f.given.StringArrayVar(value, flag.name, nil, flag.usage)
		}
	}
	completeFlag(c, "provider", "azure", "aws", "gcp", "github", "generic")
}

// checkSort returns an error for flags that do not apply to a sort of URL: git, oci, s3, gs, azblob,
// index or charts, which is a chart repository in a registry. With the sort "" there is no URL, and
// no flag applies. A flag about objects must not be empty either: the value may come from an unset
// variable, and is not the default.
func (f *urlFlags) checkSort(sort string) error {
	if f.given == nil { // the command takes no URLs
		return nil
	}
	for _, flag := range f.all() {
		given := f.given.Lookup(flag.name)
		if !given.Changed || !flag.object && (given.Value.String() == "" || given.Value.String() == "false") {
			continue
		}
		switch {
		case sort == "":
			return usage("--%s requires a URL: set %s of the objects", flag.name, flag.field)
		case given.Value.String() == "":
			return usage("--%s must not be empty: say what is wanted, or leave it out", flag.name)
		case flag.object && f.chart == "" && flag.sorts == "index charts": // not with the URL of an archive either
			return usage("--%s requires --chart", flag.name)
		case flag.sorts != "" && !slices.Contains(strings.Fields(flag.sorts), sort):
			return usage("--%s does not go with this URL, but with those of %s", flag.name, strings.Join(strings.Fields(flag.sorts), ", "))
		}
	}
	return nil
}

// fieldsToFlags replaces the names of fields in a text with the flags that set them.
func fieldsToFlags(text string) string {
	var pairs []string
	for _, flag := range (&urlFlags{makesObjects: true}).all() {
		pairs = append(pairs, flag.field, "--"+flag.name)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

var (
	scpForm = regexp.MustCompile(`^([\w.-]+@)?([\w.-]{2,}|\[[\da-fA-F:]+\]):([^/].*|/.*)$`) // a single letter is a drive
	// hostAndPath matches a URL without its scheme. The host has a dot or a port.
	hostAndPath = regexp.MustCompile(`^[\w-]+((\.[\w-]+)+(:\d+)?|:\d+)/`)
	chartFile   = regexp.MustCompile(`^(https?://.+)/([^/]+?)-(v?\d+\.\d+\.[^/]*)\.tgz$`)
	minute      = source.Duration(time.Minute)
)

// objectOf returns the object that arg defines: a URL, a local path of a repository or directory,
// or USER@HOST:PATH. Each may have a suffix @REF.
func (s *session) objectOf(ctx context.Context, arg string) (source.Object, error) {
	local, isFile := strings.CutPrefix(arg, "file://")
	scp := scpForm.FindStringSubmatch(arg)
	switch m := chartFile.FindStringSubmatch(arg); {
	case m != nil && s.flags.chart == "":
		return s.chartOf(m[1], m[2], m[3])
	case isFile, !strings.Contains(arg, "://") && (scp == nil || isDir(arg) || hostAndPath.MatchString(arg)):
		ref := ""
		if at := strings.LastIndexByte(local, '@'); at > 0 && !isDir(local) {
			local, ref = local[:at], local[at:]
		}
		switch {
		case isDir(local):
		case exists(local):
			return nil, usage("%q is a file: give files of objects with -f", arg)
		case hostAndPath.MatchString(arg):
			return nil, usage("%q is neither a URL nor an existing directory; a URL has a scheme: https://%[1]s is a Git repository, oci://%[1]s is in a registry", arg)
		default:
			return nil, usage("%q is neither a URL nor an existing directory; give objects with -f, or URLs such as https://HOST/PATH", arg)
		}
		dir, err := filepath.Abs(local)
		if err != nil {
			return nil, err
		}
		address := strings.ReplaceAll((&url.URL{Scheme: "http", Host: "localhost", Path: filepath.ToSlash(dir)}).String(), "@", "%40")
		s.env.Local[address], arg = dir, address+ref
	case !strings.Contains(arg, "://"):
		arg = "ssh://" + scp[1] + scp[2] + "/" + strings.TrimPrefix(scp[3], "/")
	}
	if last := arg[len(arg)-1:]; last == "@" || last == ":" && strings.HasPrefix(arg, ociScheme) {
		return nil, usage("%s: nothing follows the %q at its end: say what is wanted, or leave it out", redact.String(arg), last)
	}
	if s.flags.chart != "" {
		return s.chartOf(arg, s.flags.chart, s.flags.version)
	}
	scheme, _, _ := strings.Cut(arg, "://")
	if azureURL.MatchString(arg) {
		scheme = "azblob"
	}
	switch scheme {
	case "s3", "gs", "azblob":
		return s.bucketOf(arg, scheme)
	case "oci":
		return s.registryOf(arg)
	case "https", "http", "ssh":
		return s.gitOf(ctx, arg)
	default:
		return nil, usage("%s: there are no sources with %s: want https, http or ssh for Git, or oci, s3, gs or azblob", redact.String(arg), scheme)
	}
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// finalizeObject sets the defaults of an object and its name: the given name, or else words and a hash of
// its identity. It returns an error if an object with another URL is saved under the given name: if
// the fetch failed, the artifact of the other object would stay in place.
func (s *session) finalizeObject(obj source.Object, words, name string) error {
	head := obj.Head()
	head.Kind = source.ReferenceTo(obj).Kind
	source.Default(obj)
	id := identity(obj)
	if head.Metadata.Name = name; name == "" && s.flags.noHash {
		head.Metadata.Name = nameFor(words, 63)
	} else if name == "" {
		head.Metadata.Name = fmt.Sprintf("%s-%.5x", nameFor(words, 52), sha256.Sum256([]byte(id)))
	} else if ref := source.ReferenceTo(obj); s.flags.store != "" {
		saved, err := ledgerOf(s.flags.store).Object(ref)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return &exitError{codeOf(err), err}
		case identity(saved) != id:
			return usage("--name %s: %s has this name, and another URL: choose another name, or remove that one with headgate delete", name, sourceName(ref))
		}
	}
	if err := source.Validate(obj); err != nil {
		return &exitError{exitUsage, err}
	}
	return nil
}

// identity returns the address of the origin of an object without credentials. For a chart it
// returns the name of its repository and the name of the chart.
func identity(obj source.Object) string {
	address := ""
	switch o := obj.(type) {
	case *source.GitRepository:
		address = o.Spec.URL
	case *source.OCIRepository:
		address = o.Spec.URL
	case *source.PkgRepository:
		address = o.Spec.URL
	case *source.Bucket:
		endpoint, _, _ := strings.Cut(o.Spec.Endpoint, "?") // the query has a signature
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

// nameFor returns an object name of at most maxLen bytes for a text.
func nameFor(text string, maxLen int) string {
	name := strings.Trim(regexp.MustCompile(`[^a-z0-9]`).ReplaceAllString(strings.ToLower(text), "-"), "-")
	if name = strings.Trim(name[:min(len(name), maxLen)], "-"); name == "" {
		return "source"
	}
	return name
}

// secretRef returns a reference to the Secret called name, or nil if name is "".
func secretRef(name string) *source.LocalReference {
	if name == "" {
		return nil
	}
	return &source.LocalReference{Name: name}
}

// lastWord returns the last element of the path of a URL.
func lastWord(u *url.URL) string { return strings.TrimSuffix(path.Base(u.Path), ".git") }

// gitOf returns the GitRepository that URL[@REF] defines.
func (s *session) gitOf(ctx context.Context, arg string) (source.Object, error) {
	f := s.flags
	address, ref := splitRef(arg)
	u, err := url.Parse(address)
	if err != nil {
		return nil, usage("%q is no URL", redact.String(address))
	}
	g := &source.GitRepository{Spec: source.GitRepositorySpec{
		URL: address, Provider: f.provider, Interval: minute, SecretRef: secretRef(f.secret), ProxySecretRef: secretRef(f.proxy),
	}}
	if g.Spec.SecretRef == nil && (u.Scheme == "ssh" || f.provider == "github") {
		g.Spec.SecretRef = secretRef(nameFor(lastWord(u), 63))
	}
	if f.path != "" {
		g.Spec.SparseCheckout = []string{f.path}
	}
	hex := strings.Trim(ref, "0123456789abcdef") == ""
	named := source.GitRepositoryRef{Branch: f.branch, Tag: f.tag, SemVer: f.semver}
	switch given := named != (source.GitRepositoryRef{}); {
	case given && ref != "":
		return nil, usage("%s: --branch, --tag and --semver exclude the %q in the URL", redact.String(address), "@"+ref)
	case given:
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
	if err := errors.Join(f.checkSort("git"), s.finalizeObject(g, lastWord(u), f.name)); err != nil || g.Spec.Ref != nil {
		return g, err
	}
	return g, s.branchOrTag(ctx, g, ref)
}

// splitRef cuts URL@REF at the first @ in the path, so user information and refs with slashes stay
// intact.
func splitRef(arg string) (address, ref string) {
	start := strings.Index(arg, "://") + 3
	slash := strings.IndexByte(arg[start:], '/')
	if slash < 0 {
		return arg, ""
	}
	address, ref, _ = strings.Cut(arg[start+slash:], "@")
	return arg[:start+slash] + address, ref
}

// branchOrTag asks the origin whether ref is a branch or a tag. As in git, a branch takes
// precedence. If neither exists, resolving HEAD shows whether the repository or a Secret is
// missing.
func (s *session) branchOrTag(ctx context.Context, g *source.GitRepository, ref string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Duration(g.Spec.Timeout))
	defer cancel()
	name := cmp.Or(s.env.Local[g.Spec.URL], redact.String(g.Spec.URL))
	var err error
	for _, choice := range []*source.GitRepositoryRef{{Branch: ref}, {Tag: ref}, {Name: "HEAD"}} {
		g.Spec.Ref = choice
		from, newErr := s.origins.New(g, s.env)
		if err = newErr; err == nil {
			_, _, err = from.Resolve(ctx, nil)
		}
		switch {
		case err == nil && choice.Name == "":
			return nil
		case err == nil:
			return failure(fmt.Errorf("%s has no branch and no tag %q", name, ref))
		case !errors.Is(err, fs.ErrNotExist):
			return failure(fmt.Errorf("%s: %w%s", name, err, unreachableHint(err)))
		}
	}
	return failure(fmt.Errorf("%s: %w", name, err))
}

const ociScheme = "oci://"

// registryOf returns the OCIRepository that oci://HOST/PATH[:TAG][@DIGEST | @RANGE] defines.
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
		SecretRef: secretRef(f.secret), CertSecretRef: secretRef(f.cert), ProxySecretRef: secretRef(f.proxy),
	}}
	if strings.Contains(ref, ":") {
		o.Spec.Ref.Digest = ref
	} else if ref != "" {
		o.Spec.Ref.SemVer = ref
	}
	if tag != "" && o.Spec.Ref.SemVer != "" {
		return nil, usage("%s: a tag and a range of versions exclude each other", redact.String(arg))
	}
	return o, errors.Join(f.checkSort("oci"), s.finalizeObject(o, lastWord(u), f.name))
}

// An objectStore describes the URLs of buckets with one scheme.
type objectStore struct {
	form      string   // of the URLs
	providers []string // possible providers, the default first
	endpoint  string   // default for --endpoint; "" if the URL names it
}

var objectStores = map[string]objectStore{
	"s3":     {"s3://BUCKET[/PREFIX]", []string{"aws", "generic"}, "s3.amazonaws.com"},
	"gs":     {"gs://BUCKET[/PREFIX]", []string{"gcp"}, "storage.googleapis.com"},
	"azblob": {"azblob://HOST/CONTAINER[/PREFIX], or azblob://CONTAINER[/PREFIX] with --endpoint", []string{"azure"}, ""},
}

// azureURL matches the URLs of Azure blob services.
var azureURL = regexp.MustCompile(`^https://([^/?#]*@)?[^/?#:]*(\.blob\.core\.(windows\.net|usgovcloudapi\.net|chinacloudapi\.cn)|\.blob\.storage\.azure\.net)(:[^/?#]*)?([/?#]|$)`)

// bucketOf returns the Bucket that a URL defines.
func (s *session) bucketOf(arg, scheme string) (source.Object, error) {
	at, f := objectStores[scheme], s.flags
	provider := cmp.Or(f.provider, at.providers[0])
	if f.provider == "" && f.endpoint != "" {
		provider = at.providers[len(at.providers)-1]
	}
	if !slices.Contains(at.providers, provider) {
		return nil, usage("--provider %s does not go with %s: want %s", provider, at.form, strings.Join(at.providers, " or "))
	}
	b := &source.Bucket{Spec: source.BucketSpec{
		Provider: provider, Region: f.region, Insecure: f.insecure, Interval: minute, Timeout: source.Duration(s.timeout),
		SecretRef: secretRef(f.secret), CertSecretRef: secretRef(f.cert), ProxySecretRef: secretRef(f.proxy),
	}}
	if !at.locate(arg, f, &b.Spec) {
		return nil, usage("%s: want %s; credentials go into the Secret of --secret-ref", redact.String(arg), at.form)
	}
	return b, errors.Join(f.checkSort(scheme), s.finalizeObject(b, b.Spec.BucketName+"/"+b.Spec.Prefix, f.name))
}

// locate parses a URL into spec. A URL with its own scheme has two or three parts without escapes.
// locate returns false for URLs with a user or a query, which may be secret.
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

// chartOf returns the PkgChart of a name and version in the repository at a URL. It adds the chart
// and its PkgRepository to the objects of the session.
func (s *session) chartOf(arg, name, version string) (source.Object, error) {
	repo, err := s.repositoryOf(arg)
	if err != nil {
		return nil, err
	}
	c := &source.PkgChart{Spec: source.PkgChartSpec{
		Chart: name, Version: version, ValuesFiles: s.flags.values, Interval: minute,
		SourceRef: source.LocalChartSourceReference{Kind: repo.Kind, Name: repo.Metadata.Name},
	}}
	if err := s.finalizeObject(c, name, s.flags.name); err != nil {
		return nil, err
	}
	s.set.Objects = append(s.set.Objects, repo, c)
	return c, nil
}

// repositoryOf returns the PkgRepository that a URL defines.
func (s *session) repositoryOf(arg string) (*source.PkgRepository, error) {
	u, err := url.Parse(arg)
	if err != nil {
		return nil, usage("%q is no URL", redact.String(arg))
	}
	f, sort := s.flags, "index"
	r := &source.PkgRepository{Spec: source.PkgRepositorySpec{
		URL: arg, Type: source.RepositoryIndex, Interval: minute, Timeout: source.Duration(s.timeout), SecretRef: secretRef(f.secret), CertSecretRef: secretRef(f.cert),
	}}
	switch u.Scheme {
	case "http", "https":
	case "oci":
		sort, r.Spec.Type, r.Spec.Provider, r.Spec.Insecure = "charts", source.RepositoryOCI, f.provider, f.insecure
	default:
		return nil, usage("%s: a chart repository is at https://HOST/PATH, http://HOST/PATH or oci://HOST/PATH; for a chart in another source write objects, and give them with -f", redact.String(arg))
	}
	return r, errors.Join(f.checkSort(sort), s.finalizeObject(r, u.Hostname()+strings.TrimSuffix(u.Path, "/"), ""))
}
