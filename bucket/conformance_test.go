package bucket_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

var fs404 = fs.ErrNotExist

// The defects of every store, beyond those of the suite.
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
	busyToken   sourcetest.Defect = "token service is busy"
	leakyToken  sourcetest.Defect = "token service repeats what it got"
	stallObject sourcetest.Defect = "stall before the object"
	stallToken  sourcetest.Defect = "stall token service"
)

func of(phase testenv.Phase, d *testenv.Defect) *testenv.Defect {
	d.Phase = phase
	return d
}

// defect translates the defects that are the server's.
func (m *maker) defect(d sourcetest.Defect) *testenv.Defect {
	token := testenv.GetToken
	if m == aws {
		token = testenv.AssumeRole
	}
	return map[sourcetest.Defect]*testenv.Defect{
		sourcetest.Gone:         of(testenv.ListObjects, m.failure(404, "Absent", "It does not exist")),
		sourcetest.Denied:       of(testenv.ListObjects, m.failure(403, "AccessDenied", "Access Denied")),
		sourcetest.Leaking:      {Phase: testenv.ListObjects, Do: testenv.Leak, Status: 400},
		sourcetest.Truncated:    {Phase: testenv.GetObject, Do: testenv.End},
		sourcetest.StallResolve: {Phase: testenv.ListObjects, Do: testenv.Stall, After: -1},
		sourcetest.StallFetch:   {Phase: testenv.GetObject, Do: testenv.Stall, After: 1},
		cut:                     {Phase: testenv.GetObject, Do: testenv.Cut},
		longer:                  {Phase: testenv.GetObject, Do: testenv.Swell, After: 1},
		otherETag:               of(testenv.GetObject, testenv.With(map[bool]string{true: "X-Goog-Generation"}[m == google]+map[bool]string{false: "ETag"}[m == google], `"other"`)),
		flipped:                 {Phase: testenv.GetObject, Do: testenv.Flip},
		loop:                    {Phase: testenv.ListObjects, Do: testenv.Loop},
		refused:                 of(testenv.GetObject, m.failure(403, "AccessDenied", "Access Denied")),
		vanishes:                of(testenv.GetObject, m.failure(404, "Absent", "It does not exist.")),
		changes:                 of(testenv.GetObject, m.failure(412, "Changed", "A pre-condition did not hold")),
		busyToken:               {Phase: token, Status: http.StatusServiceUnavailable, Body: "busy"},
		leakyToken:              {Phase: token, Do: testenv.Leak, Status: 400},
		stallObject:             {Phase: testenv.GetObject, Do: testenv.Stall, After: -1},
		stallToken:              {Phase: token, Do: testenv.Stall, After: 10},
	}[d]
}

// A pool is a bucket of an object store, for the conformance suite.
type pool struct {
	s *testenv.Store
	variant
	secrets sourcetest.Secrets
	defect  sourcetest.Defect
}

// A variant is one way to reach a bucket, and what it holds.
type variant struct {
	*maker
	config testenv.StoreConfig
	tls    bool
	host   string // of the endpoint, which is reached by a proxy
	under  string
	login  source.Credential // of the identity of the program, empty for none
	keys   func(s *testenv.Store) []string
	spec   func(s *testenv.Store, spec *source.BucketSpec)
	kind   func(*sourcetest.Kind)
}

func newPool(t *testing.T, v variant) *pool {
	switch {
	case v.host == "storage.googleapis.com":
		v.config.CA, v.config.Names = testenv.SystemCA(t), []string{v.host}
	case v.tls:
		v.config.CA = testenv.NewCA(t)
		if v.host != "" {
			v.config.Names = []string{v.host}
		}
	}
	p := &pool{variant: v, s: v.filled(t, v.config), secrets: sourcetest.Secrets{}}
	wrong := map[*maker][]string{aws: {"accesskey", accessKey, "secretkey", "other-" + canary}, microsoft: {"accountKey", "AAAA" + accountKey},
		google: {"serviceaccount", strings.ReplaceAll(string(p.s.Key()), robot, "other@example.com")}}
	p.secrets["default/wrong"] = sourcetest.Secret(wrong[v.maker]...)
	p.secrets["default/sts"] = sourcetest.Secret("username", "user", "password", canary, "token", identity)
	if v.keys != nil {
		p.secrets["default/keys"] = sourcetest.Secret(v.keys(p.s)...)
	}
	if ca := v.config.CA; v.tls {
		cert, key := ca.Client("user")
		p.secrets["default/tls"] = sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key))
	}
	if v.host != "" {
		hosts := map[string]string{v.host + ":443": p.s.Host, "app." + v.host + ":443": p.s.Host}
		proxy := testenv.ServeProxy(t, testenv.Proxy{Username: "proxy", Password: "proxy-" + canary, Hosts: hosts})
		p.secrets["default/proxy"] = sourcetest.Secret("address", proxy.URL, "username", "proxy", "password", "proxy-"+canary)
	}
	return p
}

// Publish implements [sourcetest.Upstream]. The ignore file is at the root of the
// bucket, wherever the tree is, and so is something that is not of it.
func (p *pool) Publish(tree fstest.MapFS) error {
	objects := map[string]string{}
	if p.under != "" {
		objects["another"], objects[p.under+"-other/file"] = "another", "another"
	}
	for name, file := range tree {
		if p.under != "" && name != ".sourceignore" {
			name = p.under + "/" + name
		}
		objects[name] = string(file.Data)
	}
	p.s.Bucket("app").Replace(objects)
	return nil
}

func (p *pool) Break(d sourcetest.Defect) <-chan struct{} {
	p.defect = d
	return p.s.Break(p.maker.defect(d))
}

func (p *pool) Object() source.Object {
	b := p.following(p.s)
	spec := &b.Spec
	if p.keys != nil {
		spec.SecretRef = ref("keys")
	}
	if p.tls {
		spec.CertSecretRef = ref("tls")
	}
	if p.host != "" {
		spec.Endpoint, spec.ProxySecretRef = p.host, ref("proxy")
	}
	if p.under != "" {
		spec.Prefix = p.under + "/"
	}
	if p.spec != nil {
		p.spec(p.s, spec)
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

func (p *pool) Origin(obj source.Object) source.Origin {
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

func (p *pool) Traffic() sourcetest.Traffic {
	return sourcetest.Traffic{Requests: p.s.Count(), Content: p.s.ContentBytes()}
}

func (p *pool) Secrets() []string { return append(p.s.Issued(), secretForms()...) }

// only leaves failures that a variant might have another way to end in.
func only(left ...sourcetest.Defect) func(*sourcetest.Kind) {
	return func(k *sourcetest.Kind) {
		k.Hostile = k.Hostile[:2]
		k.Only(left...)
	}
}

// failing adds a failure.
func failing(kind func(*sourcetest.Kind), d sourcetest.Defect, reason, message string) func(*sourcetest.Kind) {
	return func(k *sourcetest.Kind) {
		if kind != nil {
			kind(k)
		}
		k.Failures = append(k.Failures, sourcetest.Fails(d, reason, message))
	}
}

// tokens is what differs where credentials are issued by a service that may stall.
func tokens(k *sourcetest.Kind) {
	only(sourcetest.Denied, vanishes)(k)
	k.Failures = append(k.Failures, sourcetest.Fails(busyToken, "AuthenticationFailed", "503"), sourcetest.Fails(leakyToken, "AuthenticationFailed", ""))
	k.Stalls = append(k.Stalls, stallToken)
}

func sts(provider string) func(*testenv.Store, *source.BucketSpec) {
	return func(s *testenv.Store, spec *source.BucketSpec) {
		spec.STS = &source.BucketSTSSpec{Provider: provider, Endpoint: s.Base, SecretRef: ref("sts"), CertSecretRef: spec.CertSecretRef}
	}
}

// variants are the combinations that run the whole suite.
var variants = map[string]variant{
	"S3, keys": {maker: aws, config: aws.private, keys: aws.secret, kind: failing(nil, wrongKey, "AuthenticationFailed", "SignatureDoesNotMatch")},
	"S3, anonymous, small pages, in parts": {maker: aws, config: testenv.StoreConfig{AccessKey: accessKey, SecretKey: canary, Anonymous: true, PageSize: 2, Multipart: true},
		kind: only(sourcetest.Gone, cut)},
	"S3, mutual TLS, another region, unordered": {maker: aws, keys: aws.secret, tls: true, kind: only(sourcetest.Denied, sourcetest.NoSecret, changes),
		config: testenv.StoreConfig{AccessKey: accessKey, SecretKey: canary, Mutual: true, Region: "eu-west-3", PageSize: 3,
			Arrange: func(keys []string) []string { slices.Reverse(keys); return keys }}},
	"S3, temporary keys of LDAP":                {maker: aws, config: testenv.StoreConfig{LDAPUsername: "user", LDAPPassword: canary}, spec: sts("ldap"), kind: tokens},
	"S3, temporary keys of a web identity, TLS": {maker: aws, config: testenv.StoreConfig{WebIdentityToken: identity}, tls: true, spec: sts("webidentity"), kind: tokens},
	"AWS, virtual hosts, below a prefix": {maker: aws, tls: true, under: "some/where", host: "s3.eu-west-3.amazonaws.com",
		config: testenv.StoreConfig{AccessKey: accessKey, SecretKey: canary, SessionToken: "token-" + canary, Region: "eu-west-3"},
		login:  source.Credential{Username: accessKey, Password: canary, Token: "token-" + canary},
		spec:   func(_ *testenv.Store, s *source.BucketSpec) { s.Provider, s.Region = "aws", "eu-west-3" },
		kind:   failing(only(sourcetest.Gone, sourcetest.Denied, sourcetest.Leaking, vanishes), noLogin, "AuthenticationFailed", "the role is not there")},

	"Google, key of a service account": {maker: google, config: google.private, keys: google.secret, kind: failing(func(k *sourcetest.Kind) {
		k.Failures = slices.DeleteFunc(k.Failures, func(f sourcetest.Failure) bool { return f.Defect == cut || f.Defect == longer }) // as Truncated, and slow
		k.Stalls = append(k.Stalls, stallToken)
	}, wrongKey, "AuthenticationFailed", "invalid_grant: Invalid grant: account not found")},
	"Google, anonymous, small pages after empty ones": {maker: google, config: testenv.StoreConfig{PageSize: 2, Empty: true}, kind: only(sourcetest.Gone, flipped)},
	"Google, mutual TLS, tokens that end": {maker: google, config: testenv.StoreConfig{Robot: robot, Mutual: true, PageSize: 3, Uses: 4}, tls: true, keys: google.secret,
		spec: func(s *testenv.Store, spec *source.BucketSpec) { spec.Endpoint = s.Base + "/storage/v1/" }, kind: tokens},
	"Google, identity of the program": {maker: google, config: testenv.StoreConfig{Token: "ya29." + "cAnArY"}, host: "storage.googleapis.com", login: source.Credential{Token: "ya29.cAnArY"},
		kind: failing(only(sourcetest.Denied, sourcetest.Leaking, vanishes), noLogin, "AuthenticationFailed", "log in with provider gcp")},

	"Azure, account key": {maker: microsoft, config: microsoft.private, keys: microsoft.secret, kind: failing(nil, wrongKey, "AuthenticationFailed", "check the credentials, and the clock")},
	"Azure, signature in a Secret, TLS, small pages, directories": {maker: microsoft, config: testenv.StoreConfig{SAS: sas, PageSize: 2, Hierarchical: true}, tls: true,
		keys: func(*testenv.Store) []string { return []string{"sasKey", sas} }, kind: only(sourcetest.Denied, sourcetest.Leaking)},
	"Azure, signature in the URL, mutual TLS, below a prefix": {maker: microsoft, config: testenv.StoreConfig{SAS: sas, Mutual: true}, tls: true, under: "some/where",
		spec: func(_ *testenv.Store, s *source.BucketSpec) { s.Endpoint += "?" + sas }, kind: only(sourcetest.Gone, sourcetest.Denied, sourcetest.Leaking, refused, changes)},
	"Azure, application": {maker: microsoft, config: testenv.StoreConfig{Tenant: tenant, Client: "app", Secret: canary}, tls: true, keys: application, kind: tokens},
	"Azure, public, host of the account": {maker: microsoft, tls: true, host: "acme.blob.core.windows.net",
		spec: func(_ *testenv.Store, s *source.BucketSpec) { s.Endpoint = "https://acme.blob.core.windows.net/" }, kind: only(sourcetest.Gone, otherETag)},
	"Azure, identity of the program": {maker: microsoft, config: testenv.StoreConfig{Token: "cAnArY-token"}, login: source.Credential{Token: "cAnArY-token"},
		kind: failing(only(sourcetest.Denied, sourcetest.Leaking), noLogin, "AuthenticationFailed", "the role is not there")},
}

func application(s *testenv.Store) []string {
	return []string{"tenantId", tenant, "clientId", "app", "clientSecret", canary, "authorityHost", s.Base}
}

func TestConformance(t *testing.T) {
	const failed = "BucketOperationFailed"
	for name, v := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := sourcetest.Kind{
				Name: "Bucket", Under: v.under,
				Open: func(sourcetest.TB) sourcetest.Upstream { return newPool(t, v) },
				Drift: func(obj source.Object) {
					ignore := "/nothing-of-that-name\n"
					obj.(*source.Bucket).Spec.Ignore = &ignore
				},
				Failures: []sourcetest.Failure{
					sourcetest.Fails(sourcetest.Gone, failed, "404"), sourcetest.Fails(noBucket, failed, "404"),
					sourcetest.Fails(sourcetest.Denied, "AuthenticationFailed", "403"), sourcetest.Fails(refused, "AuthenticationFailed", "403"),
					sourcetest.Fails(sourcetest.NoSecret, "AuthenticationFailed", "default/absent"),
					sourcetest.Fails(sourcetest.Leaking, failed, "400"), sourcetest.Fails(sourcetest.Truncated, failed, ""), sourcetest.Fails(cut, failed, ""),
					sourcetest.Fails(vanishes, failed, ""), sourcetest.Fails(changes, failed, ""), sourcetest.Fails(longer, failed, ""),
					sourcetest.Fails(otherETag, failed, ""), sourcetest.Fails(loop, failed, "repeats a page token"),
					{Defect: sourcetest.Invalid, Outcome: source.Stalled, Condition: "FetchFailed", Reason: "URLInvalid", Message: "spec.endpoint"},
				},
				Stalls:     []sourcetest.Defect{sourcetest.StallResolve, stallObject, sourcetest.StallFetch},
				Hostile:    []string{"../up", "a/../../up", "/absolute", `a\b`, "..", "a/..", "./a", "a//b", "a\nb", "good/a", strings.Repeat("a", 256)},
				IgnoreFile: ".sourceignore", LosesModes: true,
			}
			if v.maker == google {
				k.Failures = append(k.Failures, sourcetest.Fails(flipped, failed, "bad CRC"))
			}
			if v.kind != nil {
				v.kind(&k)
			}
			sourcetest.Run(t, k)
		})
	}
}
