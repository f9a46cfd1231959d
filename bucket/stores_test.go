//go:debug x509usefallbackroots=1

package bucket_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/azure"
	"github.com/headgate-io/headgate/bucket/gcs"
	"github.com/headgate-io/headgate/bucket/s3"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// The credentials of these tests contain cAnArY, which must not appear in any text.
const (
	canary         = "cAnArY+secret/key="
	accessKey      = "AKIA"
	serviceAccount = "robot@project.iam.gserviceaccount.com"
	tenant         = "11111111-2222-3333-4444-555555555555"
	identity       = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.cAnArY-signature"
)

var (
	accountKey = base64.StdEncoding.EncodeToString([]byte("cAnArY account key that shows nowhere"))
	sas        = "sv=2021-12-02&sr=c&sp=rl&se=2999-01-01T00%3A00%3A00Z&sig=" + url.QueryEscape(canary)
)

// secretForms returns the secrets in all spellings; none may appear in a text.
func secretForms() (all []string) {
	for _, s := range []string{canary, accountKey} {
		quoted, _ := json.Marshal(s)
		all = append(all, s, url.QueryEscape(s), url.PathEscape(s), url.QueryEscape(url.QueryEscape(s)), strings.ReplaceAll(s, "/", `\/`), strings.Trim(string(quoted), `"`))
	}
	return append(all, sas, "cAnArY")
}

// A storeMaker starts stores of one provider, and holds the differences between the three.
type storeMaker struct {
	provider string
	connect  bucket.Provider
	start    func(testing.TB, testenv.StoreConfig) *testenv.Store
	failure  func(status int, code, message string) *testenv.Defect
	private  testenv.StoreConfig // requires the credentials that secret returns
	secret   func(s *testenv.Store) []string
}

var (
	aws = &storeMaker{"generic", s3.Connect, testenv.StartS3, testenv.S3Failure, testenv.StoreConfig{AccessKey: accessKey, SecretKey: canary},
		func(*testenv.Store) []string { return []string{"accesskey", accessKey, "secretkey", canary} }}
	google = &storeMaker{"gcp", gcs.Connect, testenv.StartGCS, testenv.GCSFailure, testenv.StoreConfig{ServiceAccount: serviceAccount},
		func(s *testenv.Store) []string { return []string{"serviceaccount", string(s.Key())} }}
	microsoft = &storeMaker{"azure", azure.Connect, testenv.StartAzblob, testenv.AzureFailure, testenv.StoreConfig{Key: accountKey},
		func(*testenv.Store) []string { return []string{"accountKey", accountKey} }}
)

var makers = []*storeMaker{aws, google, microsoft}

var providers = map[string]bucket.Provider{"generic": s3.Connect, "aws": s3.Connect, "gcp": gcs.Connect, "azure": azure.Connect}

// filled starts a store whose bucket app has objects KEY, CONTENT, …
func (m *storeMaker) filled(t testing.TB, c testenv.StoreConfig, keyContent ...string) *testenv.Store {
	s := m.start(t, c)
	b := s.Bucket("app")
	for i := 0; i < len(keyContent); i += 2 {
		b.Put(keyContent[i], keyContent[i+1])
	}
	return s
}

// following returns a Bucket object for the bucket app of a store.
func (m *storeMaker) following(s *testenv.Store) *source.Bucket {
	return &source.Bucket{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "Bucket", Metadata: source.Metadata{Name: "app", Namespace: "default"}},
		Spec: source.BucketSpec{Provider: m.provider, BucketName: "app", Endpoint: s.URL, Insecure: strings.HasPrefix(s.Base, "http:"),
			Interval: source.Duration(time.Hour), Timeout: source.Duration(10 * time.Minute)},
	}
}

// access returns an Access for the bucket app, with a Secret of KEY, VALUE, …
func (m *storeMaker) access(s *testenv.Store, keyValue ...string) *bucket.Access {
	a := &bucket.Access{Spec: &m.following(s).Spec, SecretReader: &transport.SecretReader{Namespace: "default"}}
	if keyValue != nil {
		a.Spec.SecretRef, a.Secret = ref("secret"), secretOf(a.SecretReader, "secret", keyValue...)
	}
	return a
}

// secretOf returns a Secret, and has v conceal its values as if v had read it.
func secretOf(v *transport.SecretReader, name string, keyValue ...string) transport.Secret {
	s := transport.Secret{Name: "default/" + name, Secret: sourcetest.Secret(keyValue...)}
	for key, value := range s.Data {
		if key != "username" {
			v.Conceal(string(value))
		}
	}
	return s
}

// opened connects to the bucket app of a store, with its credentials.
func (m *storeMaker) opened(t testing.TB, s *testenv.Store) bucket.Driver {
	t.Helper()
	return m.connected(t, m.access(s, m.secret(s)...))
}

func (m *storeMaker) connected(t testing.TB, a *bucket.Access) bucket.Driver {
	t.Helper()
	d, err := m.connect(t.Context(), a)
	must(t, err)
	return d
}

// list returns the objects of a bucket.
func list(ctx context.Context, d bucket.Driver, prefix string) (all []bucket.Object, err error) {
	for o, err := range d.List(ctx, prefix) {
		if err != nil {
			return all, err
		}
		all = append(all, o)
	}
	return all, nil
}

// read reads o from offset on.
func read(ctx context.Context, d bucket.Driver, o bucket.Object, offset int64) (string, error) {
	r, err := d.Open(ctx, o, offset)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}

// object returns the only object of a bucket.
func object(t testing.TB, d bucket.Driver) bucket.Object {
	t.Helper()
	all, err := list(t.Context(), d, "")
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0]
}

// requireError checks that err contains each part of say, separated by |, that it is short,
// and that it contains no control characters or secrets.
func requireError(t testing.TB, s *testenv.Store, err error, say string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %s", say)
		return
	}
	for part := range strings.SplitSeq(say, "|") {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v: does not say %s", err, part)
		}
	}
	secrets := append(secretForms(), "canary", "list-type", "X-Amz-", "eyJ", "alt=", "&sig=", "PRIVATE", "\u202e", "\x1b", "\n")
	if s != nil {
		secrets = append(secrets, s.Issued()...)
	}
	for _, text := range secrets {
		if text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%v: shows %q", err, text)
		}
	}
	if len(err.Error()) > 1<<10 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

// requireReason checks that err is a *source.StepError with the reason want, unless want is "", and
// that it wraps ErrInvalid if and only if invalid is set.
func requireReason(t testing.TB, err error, want string, invalid bool) {
	t.Helper()
	step, ok := errors.AsType[*source.StepError](err)
	if want != "" && (!ok || step.Reason != want) || errors.Is(err, source.ErrInvalid) != invalid {
		t.Errorf("%v: want the reason %s, and that it wraps ErrInvalid: %v", err, want, invalid)
	}
}

// trusting returns TLS settings that trust ca, with a client certificate for the name
// reader from clientCA unless that is nil.
func trusting(t testing.TB, ca, clientCA *testenv.CA) *tls.Config {
	t.Helper()
	c := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
	if clientCA != nil {
		pair, err := tls.X509KeyPair(clientCA.Client("reader"))
		must(t, err)
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

// proxyTo starts a proxy that connects hosts, on the ports 80, 443 and 10000, to a store.
func proxyTo(t testing.TB, s *testenv.Store, hosts ...string) (*testenv.ProxyServer, func(*http.Request) (*url.URL, error)) {
	to := map[string]string{}
	for _, host := range hosts {
		to[host+":443"], to[host+":80"], to[host+":10000"], to["app."+host+":443"] = s.Host, s.Host, s.Host, s.Host
	}
	p := testenv.ServeProxy(t, testenv.ProxyConfig{Hosts: to})
	u, err := url.Parse(p.URL)
	must(t, err)
	return p, http.ProxyURL(u)
}

// TestRead checks that listed objects can be read, whatever the key and offset, and that no
// unneeded requests are sent.
func TestRead(t *testing.T) {
	t.Parallel()
	keys := []string{"a", "a/b", "dir/", "dir/b c", "dir/ü%20+&=?#.txt", "a//b", "a/../b", "dir/<&>\"'", "z~'()*!;:@$,", "é/日本", "%2F", "+", "a+b", "{object}", `back\slash`, "a\tb", "\"quoted\"", ".a", "😀", "n" + strings.Repeat("n", 1000)}
	for _, m := range makers {
		for name, c := range map[string]testenv.StoreConfig{"private": m.private, "public, pages after empty ones": {PageSize: 3, Empty: true}, "one by one": {PageSize: 1}} {
			t.Run(m.provider+", "+name, func(t *testing.T) {
				t.Parallel()
				s := m.start(t, c)
				want := map[string]string{}
				for _, key := range keys {
					want[key] = "content of " + key
				}
				s.Bucket("app").Replace(want)
				d := m.connected(t, m.access(s))
				if name == "private" {
					d = m.opened(t, s)
				}
				s.Reset()
				all, err := list(t.Context(), d, "")
				pages := map[int]int{0: 1, 3: 2 * 7, 1: len(keys)}[c.PageSize]
				if err != nil || len(all) != len(keys) || s.Count() != pages {
					t.Fatalf("%d objects with %d requests, %v", len(all), s.Count(), err)
				}
				for _, o := range all {
					for _, from := range []int64{0, 3} {
						if text, err := read(t.Context(), d, o, from); err != nil || text != want[o.Key][from:] || o.ETag == "" || strings.Contains(o.ETag, `"`) {
							t.Errorf("%+v from %d: %q, %v", o, from, text, err)
						}
					}
				}
				testenv.Equal(t, s.Count(), pages+2*len(keys), "requests")
				if some, err := list(t.Context(), d, "a/"); len(some) != 3 || err != nil {
					t.Errorf("with a prefix: %v, %v", some, err)
				}
				for _, q := range s.Requests() {
					if !strings.HasPrefix(q.Header.Get("User-Agent"), "headgate") || strings.Contains(q.Path, "fetch-owner") || strings.Contains(q.Path, "&delimiter=%2F") {
						t.Errorf("%s %v", q.Path, q.Header)
					}
				}
			})
		}
	}
}

// TestOpen checks that a replaced object is not read in place of the listed one, and that
// Content-Encoding is not decoded.
func TestOpen(t *testing.T) {
	for _, m := range makers {
		s := m.filled(t, testenv.StoreConfig{}, "a", "0123456789")
		b := s.Bucket("app")
		d := m.connected(t, m.access(s))
		o := object(t, d)
		b.Put("a", "9876543210")
		for _, offset := range []int64{0, 3} {
			_, err := read(t.Context(), d, o, offset)
			testenv.ErrorIs(t, err, bucket.ErrChanged, "%s, replaced", m.provider)
		}
		b.PutObject("a", testenv.StoredObject{Content: "\x1f\x8b not really", Encoding: "gzip"})
		for _, offset := range []int64{0, 3} {
			if text, err := read(t.Context(), d, object(t, d), offset); text != "\x1f\x8b not really"[offset:] || err != nil {
				t.Errorf("%s, encoded: %q, %v", m.provider, text, err)
			}
		}
		b.Remove("a")
		_, err := read(t.Context(), d, o, 0)
		if requireError(t, s, err, "404 Not Found"); !errors.Is(err, fs404) {
			t.Errorf("%s, removed: %v", m.provider, err)
		}
	}
	s := google.filled(t, testenv.StoreConfig{}, "a", "1")
	d := google.connected(t, google.access(s))
	o := object(t, d)
	s.Bucket("app").Touch("a") // changes the ETag but not the content
	if text, err := read(t.Context(), d, o, 0); text != "1" || err != nil || object(t, d).ETag == o.ETag {
		t.Errorf("with other metadata: %q, %v", text, err)
	}
	if _, err := d.Open(t.Context(), bucket.Object{Key: "a", Size: 10}, 0); err == nil {
		t.Error("an object that was not listed was accepted")
	}
	s = microsoft.start(t, microsoft.private)
	s.Bucket("app").PutObject("old", testenv.StoredObject{Content: "old", Tier: "Archive"})
	d = microsoft.opened(t, s)
	_, err := read(t.Context(), d, object(t, d), 0)
	requireError(t, s, err, `get object: 409 Conflict: BlobArchived|the blob is of tier Archive: rehydrate it`)
	s = microsoft.filled(t, testenv.StoreConfig{Hierarchical: true}, "dir/sub/a", "1")
	s.Bucket("app").PutObject("folder", testenv.StoredObject{Metadata: map[string]string{"hdi_isfolder": "true"}})
	var keys []string
	for o, err := range microsoft.connected(t, microsoft.access(s)).List(t.Context(), "") {
		must(t, err)
		keys = append(keys, o.Key)
	}
	testenv.Equal(t, keys, []string{"dir/", "dir/sub/", "dir/sub/a", "folder/"}, "directories")
}

var fs404 = fs.ErrNotExist

// Defects of every store, in addition to those of the suite.
const (
	noBucket    sourcetest.Defect = "no such bucket"
	refused     sourcetest.Defect = "refused object"
	cut         sourcetest.Defect = "cut"
	vanishes    sourcetest.Defect = "objects that vanish"
	changes     sourcetest.Defect = "objects that change"
	longer      sourcetest.Defect = "longer than listed"
	otherETag   sourcetest.Defect = "another ETag"
	flipped     sourcetest.Defect = "flipped"
	loop        sourcetest.Defect = "listing without end"
	wrongKey    sourcetest.Defect = "wrong key"
	noLogin     sourcetest.Defect = "login refused"
	stallObject sourcetest.Defect = "stall before the object"
	stallToken  sourcetest.Defect = "stall token service"
)

func inPhase(phase testenv.Phase, d *testenv.Defect) *testenv.Defect {
	d.Phase = phase
	return d
}

// defect returns the server's defect for d, or nil if the server has none.
func (m *storeMaker) defect(d sourcetest.Defect) *testenv.Defect {
	return map[sourcetest.Defect]*testenv.Defect{
		sourcetest.Gone:         inPhase(testenv.ListObjects, m.failure(404, "Absent", "It does not exist")),
		sourcetest.Denied:       inPhase(testenv.ListObjects, m.failure(403, "AccessDenied", "Access Denied")),
		sourcetest.Leaking:      {Phase: testenv.ListObjects, Do: testenv.Leak, Status: 400},
		sourcetest.Truncated:    {Phase: testenv.GetObject, Do: testenv.End},
		sourcetest.StallResolve: {Phase: testenv.ListObjects, Do: testenv.Stall, After: -1},
		sourcetest.StallFetch:   {Phase: testenv.GetObject, Do: testenv.Stall, After: 1},
		cut:                     {Phase: testenv.GetObject, Do: testenv.Cut},
		longer:                  {Phase: testenv.GetObject, Do: testenv.OversizedBody, After: 1},
		otherETag:               inPhase(testenv.GetObject, testenv.SetHeader(map[bool]string{true: "X-Goog-Generation"}[m == google]+map[bool]string{false: "ETag"}[m == google], `"other"`)),
		flipped:                 {Phase: testenv.GetObject, Do: testenv.Flip},
		loop:                    {Phase: testenv.ListObjects, Do: testenv.PageLoop},
		refused:                 inPhase(testenv.GetObject, m.failure(403, "AccessDenied", "Access Denied")),
		vanishes:                inPhase(testenv.GetObject, m.failure(404, "Absent", "It does not exist.")),
		changes:                 inPhase(testenv.GetObject, m.failure(412, "Changed", "A pre-condition did not hold")),
		stallObject:             {Phase: testenv.GetObject, Do: testenv.Stall, After: -1},
		stallToken:              {Phase: testenv.GetToken, Do: testenv.Stall, After: 10},
	}[d]
}

// A upstream (An) is a bucket of an object store, for the conformance suite.
type upstream struct {
	s *testenv.Store
	variant
	secrets sourcetest.Secrets
	defect  sourcetest.Defect
}

// A variant is one way to access a bucket.
type variant struct {
	*storeMaker
	config testenv.StoreConfig
	host   string // of the endpoint, which is reached over TLS through a proxy
	dir    string
	login  source.Credential // of the identity of the program, empty for none
	spec   func(spec *source.BucketSpec)
	kind   func(*sourcetest.Kind)
}

func newUpstream(t *testing.T, v variant) *upstream {
	if v.host != "" {
		v.config.CA, v.config.Names = testenv.NewCA(t), []string{v.host}
	}
	p := &upstream{variant: v, s: v.filled(t, v.config), secrets: sourcetest.Secrets{}}
	wrongKeys := map[*storeMaker][]string{aws: {"accesskey", accessKey, "secretkey", "other-" + canary}, microsoft: {"accountKey", "AAAA" + accountKey},
		google: {"serviceaccount", strings.ReplaceAll(string(p.s.Key()), serviceAccount, "other@example.com")}}
	p.secrets["default/wrong"], p.secrets["default/keys"] = sourcetest.Secret(wrongKeys[v.storeMaker]...), sourcetest.Secret(v.secret(p.s)...)
	if v.host != "" {
		p.secrets["default/tls"] = sourcetest.Secret("ca.crt", string(v.config.CA.PEM()))
		hosts := map[string]string{v.host + ":443": p.s.Host, "app." + v.host + ":443": p.s.Host}
		proxy := testenv.ServeProxy(t, testenv.ProxyConfig{Username: "proxy", Password: "proxy-" + canary, Hosts: hosts})
		p.secrets["default/proxy"] = sourcetest.Secret("address", proxy.URL, "username", "proxy", "password", "proxy-"+canary)
	}
	return p
}

// Publish implements [sourcetest.Upstream]. The ignore file is at the root of the bucket,
// wherever the tree is. If the tree is below a prefix, the bucket has other objects too.
func (p *upstream) Publish(tree fstest.MapFS) error {
	objects := map[string]string{}
	if p.dir != "" {
		objects["another"], objects[p.dir+"-other/file"] = "another", "another"
	}
	for name, file := range tree {
		if p.dir != "" && name != ".sourceignore" {
			name = p.dir + "/" + name
		}
		objects[name] = string(file.Data)
	}
	p.s.Bucket("app").Replace(objects)
	return nil
}

func (p *upstream) Break(d sourcetest.Defect) <-chan struct{} {
	p.defect = d
	return p.s.Break(p.storeMaker.defect(d))
}

func (p *upstream) Object() source.Object {
	b := p.following(p.s)
	spec := &b.Spec
	if p.host != "" {
		spec.Endpoint, spec.ProxySecretRef, spec.CertSecretRef = p.host, ref("proxy"), ref("tls")
	} else {
		spec.SecretRef = ref("keys")
	}
	if p.dir != "" {
		spec.Prefix = p.dir + "/"
	}
	if p.spec != nil {
		p.spec(spec)
	}
	switch p.defect {
	case sourcetest.Invalid:
		spec.Endpoint = "no host at all"
	case sourcetest.NoSecret:
		spec.SecretRef = ref("absent")
	case wrongKey:
		spec.SecretRef = ref("wrong")
	case noBucket:
		spec.BucketName = "other"
	}
	return b
}

func (p *upstream) Origin(obj source.Object) source.Origin {
	env := source.Env{Secrets: p.secrets}
	if p.login.Token != "" {
		env.Login = func(context.Context, source.LoginRequest) (source.Credential, error) {
			if p.defect == noLogin {
				return source.Credential{}, fmt.Errorf("the role is not there: %w", fs.ErrPermission)
			}
			return p.login, nil
		}
	}
	return bucket.New(obj.(*source.Bucket), env, providers)
}

func (p *upstream) Traffic() sourcetest.Traffic {
	return sourcetest.Traffic{Requests: p.s.Count(), Content: p.s.ContentBytes()}
}

func (p *upstream) Secrets() []string { return append(p.s.Issued(), secretForms()...) }

// variants are the combinations for which the suite runs.
var variants = map[string]variant{
	"S3, keys": {storeMaker: aws, config: aws.private, kind: func(k *sourcetest.Kind) {
		k.Failures = append(k.Failures, sourcetest.NewFailure(wrongKey, "AuthenticationFailed", "SignatureDoesNotMatch"))
	}},
	"AWS, virtual hosts, below a prefix": {storeMaker: aws, dir: "some/where", host: "s3.eu-west-3.amazonaws.com",
		config: testenv.StoreConfig{AccessKey: accessKey, SecretKey: canary, SessionToken: "token-" + canary, Region: "eu-west-3"},
		login:  source.Credential{Username: accessKey, Password: canary, Token: "token-" + canary},
		spec:   func(s *source.BucketSpec) { s.Provider, s.Region = "aws", "eu-west-3" },
		kind: func(k *sourcetest.Kind) { // only failures that might differ from those of other variants
			k.Variant, k.Hostile = true, k.Hostile[:2]
			k.KeepFailures(sourcetest.Gone, sourcetest.Denied, sourcetest.Leaking, vanishes)
			k.Failures = append(k.Failures, sourcetest.NewFailure(noLogin, "AuthenticationFailed", "the role is not there"))
		}},
	"Google, key of a service account": {storeMaker: google, config: google.private, kind: func(k *sourcetest.Kind) {
		k.Failures = slices.DeleteFunc(k.Failures, func(f sourcetest.Failure) bool { return f.Defect == cut || f.Defect == longer }) // like Truncated, but slow
		k.Failures = append(k.Failures, sourcetest.NewFailure(flipped, "BucketOperationFailed", "bad CRC"),
			sourcetest.NewFailure(wrongKey, "AuthenticationFailed", "invalid_grant: Invalid grant: account not found"))
		k.Stalls = append(k.Stalls, stallToken)
	}},
	"Azure, account key": {storeMaker: microsoft, config: microsoft.private, kind: func(k *sourcetest.Kind) {
		k.Failures = append(k.Failures, sourcetest.NewFailure(wrongKey, "AuthenticationFailed", "check the credentials, and the clock"))
	}},
}

func application(s *testenv.Store) []string {
	return []string{"tenantId", tenant, "clientId", "app", "clientSecret", canary, "authorityHost", s.Base}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	const failed = "BucketOperationFailed"
	for name, v := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := sourcetest.Kind{
				Name: "Bucket", Dir: v.dir,
				Open: func(tb sourcetest.TB) sourcetest.Upstream { return newUpstream(tb.(*testing.T), v) },
				Drift: func(obj source.Object) {
					ignore := "/nothing-of-that-name\n"
					obj.(*source.Bucket).Spec.Ignore = &ignore
				},
				Failures: []sourcetest.Failure{
					sourcetest.NewFailure(sourcetest.Gone, failed, "404"), sourcetest.NewFailure(noBucket, failed, "404"),
					sourcetest.NewFailure(sourcetest.Denied, "AuthenticationFailed", "403"), sourcetest.NewFailure(refused, "AuthenticationFailed", "403"),
					sourcetest.NewFailure(sourcetest.NoSecret, "AuthenticationFailed", "default/absent"),
					sourcetest.NewFailure(sourcetest.Leaking, failed, "400"), sourcetest.NewFailure(sourcetest.Truncated, failed, ""), sourcetest.NewFailure(cut, failed, ""),
					sourcetest.NewFailure(vanishes, failed, ""), sourcetest.NewFailure(changes, failed, ""), sourcetest.NewFailure(longer, failed, ""),
					sourcetest.NewFailure(otherETag, failed, ""), sourcetest.NewFailure(loop, failed, "repeats a page token"),
					{Defect: sourcetest.Invalid, Outcome: source.Stalled, Condition: "FetchFailed", Reason: "URLInvalid", Message: "spec.endpoint"},
				},
				Stalls:     []sourcetest.Defect{sourcetest.StallResolve, stallObject, sourcetest.StallFetch},
				Hostile:    []string{"../up", "a/../../up", "/absolute", `a\b`, "..", "a/..", "./a", "a//b", "a\nb", "good/a", strings.Repeat("a", 256)},
				IgnoreFile: ".sourceignore", LosesModes: true,
			}
			v.kind(&k)
			sourcetest.Run(t, k)
		})
	}
}
