package bucket_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A memoryDriver is a bucket in memory. Its hooks are called without its lock, so
// that they may change the bucket during a call.
type memoryDriver struct {
	mu      sync.Mutex
	objects map[string]memoryObject
	lists   []string // the prefixes that were listed
	opens   []string // the keys that were opened

	pause   time.Duration                                                         // before each object of a listing
	silent  bool                                                                  // a listing whose context ended ends without an error
	endless func(i int) bucket.Object                                             // returns object i of an endless listing
	listed  int                                                                   // number of listed objects
	order   func([]bucket.Object)                                                 // rearranges a listing; nil: by key
	onList  func(prefix string, n int) error                                      // called before object n of a listing, and at its end
	onOpen  func(o bucket.Object, offset int64) error                             // called before an object is opened
	content func(o bucket.Object, offset int64, body io.ReadCloser) io.ReadCloser // replaces the body
	connect func(ctx context.Context, a *bucket.Access) error                     // called by provide
}

// A memoryObject is one object of a memoryDriver.
type memoryObject struct {
	data string
	etag string // default: the MD5 sum of data, as in most stores
	size int64  // in listings; default: the size of data
}

// newMemory returns a bucket with objects KEY, DATA, …
func newMemory(keyData ...string) *memoryDriver {
	d := &memoryDriver{objects: map[string]memoryObject{}}
	for i := 0; i < len(keyData); i += 2 {
		d.put(keyData[i], keyData[i+1])
	}
	return d
}

func (d *memoryDriver) put(key, data string) { d.set(key, memoryObject{data: data}) }

func (d *memoryDriver) set(key string, o memoryObject) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.objects[key] = o
}

func (d *memoryDriver) remove(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.objects, key)
}

// counts returns the number of listings and reads since its last call.
func (d *memoryDriver) counts() (lists, opens int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lists, opens = len(d.lists), len(d.opens)
	d.lists, d.opens = nil, nil
	return lists, opens
}

func (o memoryObject) object(key string) bucket.Object {
	out := bucket.Object{Key: key, ETag: o.etag, Size: int64(len(o.data))}
	if out.ETag == "" {
		sum := md5.Sum([]byte(o.data))
		out.ETag = hex.EncodeToString(sum[:])
	}
	if o.size != 0 {
		out.Size = o.size
	}
	return out
}

// List implements [bucket.Driver].
func (d *memoryDriver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		list := d.listing(prefix)
		for i := 0; ; i++ {
			err := d.before(ctx, prefix, i)
			switch {
			case ctx.Err() != nil && d.silent:
				return
			case err != nil:
				yield(bucket.Object{}, err)
				return
			case d.endless != nil:
				list = append(list[:0], d.endless(i))
			case i == len(list):
				return
			default:
				list[0] = list[i]
			}
			if d.listed++; !yield(list[0], nil) {
				return
			}
		}
	}
}

// before waits and calls the hook before object i of a listing.
func (d *memoryDriver) before(ctx context.Context, prefix string, i int) error {
	select {
	case <-time.After(d.pause):
	case <-ctx.Done():
	}
	if d.onList != nil {
		if err := d.onList(prefix, i); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func (d *memoryDriver) listing(prefix string) (list []bucket.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lists = append(d.lists, prefix)
	for _, key := range slices.Sorted(maps.Keys(d.objects)) {
		if strings.HasPrefix(key, prefix) {
			list = append(list, d.objects[key].object(key))
		}
	}
	if d.order != nil && len(list) > 0 {
		d.order(list)
	}
	return list
}

// Open implements [bucket.Driver].
func (d *memoryDriver) Open(ctx context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	if d.onOpen != nil {
		if err := d.onOpen(o, offset); err != nil {
			return nil, err
		}
	}
	d.mu.Lock()
	d.opens = append(d.opens, o.Key)
	now, ok := d.objects[o.Key]
	d.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case !ok:
		return nil, &bucket.StatusError{Doing: "read " + o.Key, Status: 404, Code: "NoSuchKey"}
	case now.object(o.Key).ETag != o.ETag:
		return nil, &bucket.StatusError{Doing: "read " + o.Key, Status: 412, Code: "PreconditionFailed"}
	case offset > int64(len(now.data)):
		return nil, fmt.Errorf("offset %d of %d: %w", offset, len(now.data), fs.ErrInvalid)
	}
	body := io.NopCloser(strings.NewReader(now.data[offset:]))
	if d.content != nil {
		return d.content(o, offset, body), nil
	}
	return body, nil
}

// provide is a [bucket.Provider].
func (d *memoryDriver) provide(ctx context.Context, a *bucket.Access) (bucket.Driver, error) {
	if d.connect != nil {
		if err := d.connect(ctx, a); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// origin returns the origin of b, whose bucket is d.
func (d *memoryDriver) origin(b *source.Bucket, env source.Env) *bucket.Origin {
	return bucket.New(b, env, map[string]bucket.Provider{"generic": d.provide})
}

// newBucket returns a Bucket whose spec is changed by edit, which may be nil.
func newBucket(edit func(*source.BucketSpec)) *source.Bucket {
	b := &source.Bucket{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "Bucket",
			Metadata: source.Metadata{Name: "app", Namespace: "default"}},
		Spec: source.BucketSpec{BucketName: "stuff", Endpoint: "store.example", Interval: source.Duration(time.Hour), Timeout: source.Duration(time.Minute)},
	}
	if edit != nil {
		edit(&b.Spec)
	}
	return b
}

// resolve resolves a bucket without an earlier state.
func resolve(t *testing.T, d *memoryDriver, edit func(*source.BucketSpec)) (source.Revision, error) {
	t.Helper()
	rev, _, err := d.origin(newBucket(edit), source.Env{Limits: artifact.Limits{}}).Resolve(t.Context(), nil)
	return rev, err
}

// folder writes files NAME, CONTENT, … into a new directory, which it returns.
func folder(t *testing.T, nameContent ...string) string {
	t.Helper()
	tree := fstest.MapFS{}
	for i := 0; i < len(nameContent); i += 2 {
		tree[nameContent[i]] = &fstest.MapFile{Data: []byte(nameContent[i+1]), Mode: 0o644}
	}
	dir := filepath.Join(t.TempDir(), "files")
	must(t, os.CopyFS(dir, tree))
	return dir
}

// TestLocalDirectory checks that a local directory yields the same files as a bucket with that content.
func TestLocalDirectory(t *testing.T) {
	files := []string{
		"a", "1", "app/x.yaml", "2", "app/x.log", "3", "app/sub/y", "4", "apps", "5", "app-2/z", "6", ".git/config", "7",
		"app/.sourceignore", "x.yaml\n", "b[c]/d {x}", "8", "b/d", "9",
	}
	for name, c := range map[string]struct {
		edit  func(*source.BucketSpec)
		rules string
		want  string
	}{
		"all":             {nil, "", "*"},
		"prefix":          {func(s *source.BucketSpec) { s.Prefix = "app" }, "", "app/.sourceignore app/sub/y app/x.log app/x.yaml app-2/z apps"},
		"directory":       {func(s *source.BucketSpec) { s.Prefix = "app/" }, "", "app/.sourceignore app/sub/y app/x.log app/x.yaml"},
		"below":           {func(s *source.BucketSpec) { s.Prefix = "app/s" }, "", "app/sub/y"},
		"file":            {func(s *source.BucketSpec) { s.Prefix = "app/sub/y" }, "", "app/sub/y"},
		"special":         {func(s *source.BucketSpec) { s.Prefix = "b[c]/d {x}" }, "", "b[c]/d {x}"},
		"nothing":         {func(s *source.BucketSpec) { s.Prefix = "zzz/" }, "", ""},
		"file in the way": {func(s *source.BucketSpec) { s.Prefix = "a/" }, "", ""},
		"absolute":        {func(s *source.BucketSpec) { s.Prefix = "/a" }, "", ""},
		"empty part":      {func(s *source.BucketSpec) { s.Prefix = "app//x" }, "", ""},
		"outside":         {func(s *source.BucketSpec) { s.Prefix = "../a" }, "", ""},
		"rules":           {func(s *source.BucketSpec) { s.Prefix = "app/" }, "*.log\n.*\n", "app/sub/y app/x.yaml"},
		"rules of both":   {ignoring("!x.log\n/b*\n/a*\n/.git\n!/app/\n"), "*.log\n", "app/.sourceignore app/sub/y app/x.log app/x.yaml"},
	} {
		all := files
		if c.rules != "" {
			all = append(files[:len(files):len(files)], ".sourceignore", c.rules)
		}
		dir := folder(t, all...)
		b := newBucket(c.edit)
		o := bucket.New(b, source.Env{Local: map[string]string{"store.example/stuff": dir}}, nil)
		got := artifactOf(t, o)
		want := c.want
		if want == "*" {
			_, want = newMemory(all...).fetch(t, nil)
		}
		if c.rules != "" {
			want = strings.TrimSpace(".sourceignore " + want)
		}
		testenv.Equal(t, got, want, name)
		if _, real := newMemory(all...).fetch(t, c.edit); real != got {
			t.Errorf("%s: a bucket has %q, the directory %q", name, real, got)
		}
	}
}

// artifactOf lists the files of the artifact of o.
func artifactOf(t *testing.T, o source.Origin) string {
	t.Helper()
	rev, state, err := o.Resolve(t.Context(), nil)
	if err != nil || !strings.HasPrefix(rev.ID, "local@sha256:") || state != nil {
		t.Fatalf("%+v, %s, %v", rev, state, err)
	}
	_, files := written(t, o, rev)
	return strings.Join(files, " ")
}

// written returns the report about the artifact of a revision, and its files.
func written(t *testing.T, o source.Origin, rev source.Revision) (report source.Report, files []string) {
	t.Helper()
	c, err := o.Open(t.Context(), rev)
	must(t, err)
	defer c.Close()
	var out bytes.Buffer
	report, err = c.WriteTo(t.Context(), &out)
	must(t, err)
	tree, err := artifact.Read(&out, artifact.Limits{})
	must(t, err)
	defer tree.Close()
	must(t, fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, name)
		}
		return err
	}))
	return report, files
}

// TestLocalDirectoryName checks that local directories are looked up by endpoint and bucket name,
// without the signature.
func TestLocalDirectoryName(t *testing.T) {
	dir := folder(t, "a", "1")
	for endpoint, name := range map[string]string{
		"store.example":                     "store.example/stuff",
		"store.example/":                    "store.example/stuff",
		"https://acc.example":               "https://acc.example/stuff",
		"https://acc.example/?sig=canary/x": "https://acc.example/stuff",
	} {
		b := newBucket(func(s *source.BucketSpec) { s.Endpoint = endpoint })
		o := bucket.New(b, source.Env{Local: map[string]string{name: dir}}, nil)
		testenv.Equal(t, artifactOf(t, o), "a", endpoint)
	}
}

func TestLocalDirectoryFails(t *testing.T) {
	for name, c := range map[string]struct {
		dir  string
		is   error
		says string
	}{
		"no directory": {filepath.Join(t.TempDir(), "none"), fs.ErrNotExist, "local directory "},
		"large rules":  {folder(t, ".sourceignore", strings.Repeat("#", 1<<20+1)), nil, ".sourceignore has more than 1048576 bytes"},
	} {
		o := bucket.New(newBucket(nil), source.Env{Local: map[string]string{"store.example/stuff": c.dir}, Limits: artifact.Limits{}}, nil)
		_, _, err := o.Resolve(t.Context(), nil)
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := o.Open(t.Context(), source.Revision{ID: "local@sha256:00"}); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	linked := folder(t, "a", "1", "rules", "a\n")
	if err := os.Symlink("rules", filepath.Join(linked, ".sourceignore")); err == nil {
		o := bucket.New(newBucket(nil), source.Env{Local: map[string]string{"store.example/stuff": linked}}, nil)
		if got := artifactOf(t, o); got != "a rules" { // a symbolic link is not an object
			t.Errorf("rules by a link: %s", got)
		}
	}
}

func ref(name string) *source.LocalReference { return &source.LocalReference{Name: name} }

// setAllSecrets sets all references to Secrets.
func setAllSecrets(s *source.BucketSpec) {
	s.SecretRef, s.CertSecretRef, s.ProxySecretRef = ref("creds"), ref("tls"), ref("proxy")
	s.STS = &source.BucketSTSSpec{Provider: "ldap", Endpoint: "https://sts.example", SecretRef: ref("sts"), CertSecretRef: ref("ststls")}
}

// TestAccess checks that errors name a missing or invalid Secret, and contain none of its values.
func TestAccess(t *testing.T) {
	ca, other := testenv.NewCA(t), testenv.NewCA(t)
	cert, key := ca.Client("me")
	held := sourcetest.Secrets{
		"default/creds":  sourcetest.Secret("accesskey", "id", "secretkey", "key"),
		"default/tls":    sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)),
		"default/ststls": sourcetest.Secret("ca.crt", string(other.PEM())),
		"default/sts":    sourcetest.Secret("username", "u", "password", "p"),
		"default/proxy":  sourcetest.Secret("address", "http://proxy.example:3128", "username", "u", "password", "p"),
	}
	d := newMemory("a", "1")
	_, _, err := d.origin(newBucket(setAllSecrets), source.Env{Secrets: held}).Resolve(t.Context(), nil)
	must(t, err)
	for name, c := range map[string]struct {
		secret string
		data   []string // nil: there is no such Secret
		says   string
	}{
		"no credentials":     {"creds", nil, "spec.secretRef: secret default/creds: "},
		"no TLS":             {"tls", nil, "spec.certSecretRef: secret default/tls: "},
		"no proxy":           {"proxy", nil, "spec.proxySecretRef: secret default/proxy: "},
		"no STS":             {"sts", nil, "spec.sts.secretRef: secret default/sts: "},
		"no TLS of STS":      {"ststls", nil, "spec.sts.certSecretRef: secret default/ststls: "},
		"half a certificate": {"tls", []string{"tls.crt", string(cert)}, "secret default/tls: key tls.key is missing"},
		"no certificate":     {"ststls", []string{"ca.crt", "canary"}, "secret default/ststls: key ca.crt is not PEM"},
		"no address":         {"proxy", []string{"password", "canary"}, "secret default/proxy: key username is missing"},
	} {
		badSecrets := maps.Clone(held)
		if badSecrets["default/"+c.secret] = sourcetest.Secret(c.data...); c.data == nil {
			delete(badSecrets, "default/"+c.secret)
		}
		_, _, err := d.origin(newBucket(setAllSecrets), source.Env{Secrets: badSecrets}).Resolve(t.Context(), nil)
		step, ok := errors.AsType[*source.StepError](err)
		if !ok || step.Reason != "AuthenticationFailed" || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEndpoint checks that Endpoint refuses the endpoints that validation refuses (see
// TestAdmission of package source), and that errors contain no secrets.
func TestEndpoint(t *testing.T) {
	for _, c := range []struct {
		provider, text string
		insecure       bool
		want, query    string
		says           string // of the error
	}{
		{"generic", "minio.example:9000", false, "https://minio.example:9000", "", ""},
		{"generic", "user:canary@minio.example", false, "", "", "user information"},
		{"generic", "minio.example\ncanary", false, "", "", "control characters"},
		{"gcp", "http://127.0.0.1:4443", false, "", "", "set spec.insecure"},
		{"azure", "https://acc.blob.core.windows.net/?sv=1&sig=ca%2Fnary%3D", false, "https://acc.blob.core.windows.net", "sv=1&sig=ca%2Fnary%3D", ""},
		{"azure", "https://canary@acc.example?sig=canary", false, "", "", "user information"},
		{"azure", "https://acc.example:port?sig=canary", false, "", "", "cannot be parsed"},
	} {
		secretReader := &transport.SecretReader{}
		a := &bucket.Access{Spec: &source.BucketSpec{Provider: c.provider, Endpoint: c.text, Insecure: c.insecure}, SecretReader: secretReader}
		u, query, err := a.Endpoint()
		if c.says == "" {
			if err != nil || u.String() != c.want || query != c.query {
				t.Errorf("%s %q: %v, %q, %v; want %s", c.provider, c.text, u, query, err, c.want)
			}
			continue
		}
		wantURLInvalid(t, err, "spec.endpoint", c.says)
	}
	secretReader := &transport.SecretReader{}
	a := &bucket.Access{Spec: &source.BucketSpec{Provider: "azure", Endpoint: "https://acc.example:?sv=1&SIG=ca%2Fnary%3D"}, SecretReader: secretReader}
	_, _, err := a.Endpoint()
	wantURLInvalid(t, err, "names no host")
	for _, s := range []string{"sv=1&SIG=ca%2Fnary%3D", "ca%2Fnary%3D", "ca/nary="} {
		if !slices.Contains(secretReader.Values(), s) {
			t.Errorf("%q may show", s)
		}
	}
}

// wantURLInvalid checks the error about an endpoint, which must not contain secrets.
func wantURLInvalid(t *testing.T, err error, texts ...string) {
	t.Helper()
	step, ok := errors.AsType[*source.StepError](err)
	if !ok || step.Reason != "URLInvalid" || !errors.Is(err, source.ErrInvalid) || strings.Contains(err.Error(), "canary") {
		t.Errorf("%v: want a defect of the spec with the reason URLInvalid", err)
		return
	}
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%v: want %q", err, s)
		}
	}
}

func TestETag(t *testing.T) {
	for s, want := range map[string]string{
		`"abc"`: "abc", `W/"abc"`: "abc", `abc`: "abc", ` "abc" `: "abc", `""`: "", ``: "", `"`: `"`, `W/`: "", `"a"b"`: `a"b`,
	} {
		testenv.Equal(t, bucket.ETag(s), want, s)
	}
}

var must = testenv.Must
