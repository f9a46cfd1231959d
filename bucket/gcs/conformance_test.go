//go:debug x509usefallbackroots=1

package gcs_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/gcs"
	"github.com/headgate-io/headgate/bucket/internal/buckettest"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

const (
	account = "robot@project.iam.gserviceaccount.com"
	canary  = "ya29.cAnArY-token" // that may show nowhere
)

var providers = map[string]bucket.Provider{"gcp": gcs.Connect}

func ref(name string) *source.LocalReference { return &source.LocalReference{Name: name} }

// following returns a Bucket that follows the bucket app of a server.
func following(s *testenv.GCS) *source.Bucket {
	b := &source.Bucket{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "Bucket",
			Metadata: source.Metadata{Name: "app", Namespace: "default"}},
		Spec: source.BucketSpec{Provider: "gcp", BucketName: "app", Endpoint: s.Host, Interval: source.Duration(time.Hour), Timeout: source.Duration(time.Minute)},
	}
	b.Spec.Insecure = strings.HasPrefix(s.Base, "http:")
	return b
}

// A pool is a bucket of an object store, for the conformance suite.
type pool struct {
	s       *testenv.GCS
	p       *testenv.ProxyServer // nil for none
	variant variant
	secrets sourcetest.Secrets
	defect  sourcetest.Defect
}

// A variant is one way to reach a bucket, and what it holds.
type variant struct {
	config testenv.GCSConfig
	tls    bool // with certSecretRef
	google bool // the endpoint is Google's, behind a proxy, and the login is the program's
	spec   func(p *pool, s *source.BucketSpec)
	kind   func(*sourcetest.Kind)
}

// The defects beyond those of the suite.
const (
	otherKey    sourcetest.Defect = "key of another account"
	noKey       sourcetest.Defect = "no key"
	noBucket                      = buckettest.NoBucket
	noToken     sourcetest.Defect = "token service refuses"
	busyToken   sourcetest.Defect = "token service is busy"
	leakyToken  sourcetest.Defect = "token service repeats the proof"
	vanishes                      = buckettest.Vanishes
	changes                       = buckettest.Changes
	unmatched   sourcetest.Defect = "objects of another generation"
	flipped     sourcetest.Defect = "flipped"
	refused                       = buckettest.Refused
	cut                           = buckettest.Cut
	loop        sourcetest.Defect = "listing without end"
	noLogin     sourcetest.Defect = "login refused"
	stallObject                   = buckettest.StallObject
	stallToken  sourcetest.Defect = "stall token service"
)

func of(phase testenv.Phase, d *testenv.Defect) *testenv.Defect {
	d.Phase = phase
	return d
}

// broken translates the defects that are the server's.
var broken = map[sourcetest.Defect]*testenv.Defect{
	sourcetest.Gone:         of(testenv.ListObjects, testenv.GCSFailure(404, "notFound", "The specified bucket does not exist.")),
	sourcetest.Denied:       of(testenv.ListObjects, testenv.GCSFailure(403, "forbidden", account+" does not have storage.objects.list access")),
	sourcetest.Leaking:      {Phase: testenv.ListObjects, Do: testenv.Leak, Status: http.StatusBadRequest},
	sourcetest.Truncated:    {Phase: testenv.GetObject, Do: testenv.End},
	cut:                     {Phase: testenv.GetObject, Do: testenv.Cut},
	flipped:                 {Phase: testenv.GetObject, Do: testenv.Flip},
	loop:                    {Phase: testenv.ListObjects, Do: testenv.Loop},
	refused:                 {Phase: testenv.GetObject, Do: testenv.Leak, Status: http.StatusForbidden},
	vanishes:                of(testenv.GetObject, testenv.GCSFailure(404, "notFound", "No such object: app/a")),
	changes:                 of(testenv.GetObject, testenv.GCSFailure(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")),
	unmatched:               of(testenv.GetObject, testenv.With("X-Goog-Generation", "1")),
	noToken:                 {Phase: testenv.GetToken, Status: http.StatusBadRequest, Body: `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`},
	busyToken:               {Phase: testenv.GetToken, Status: http.StatusServiceUnavailable, Body: `busy`},
	leakyToken:              {Phase: testenv.GetToken, Do: testenv.Leak},
	sourcetest.StallResolve: {Phase: testenv.ListObjects, Do: testenv.Stall, After: -1},
	sourcetest.StallFetch:   {Phase: testenv.GetObject, Do: testenv.Stall, After: 1},
	stallObject:             {Phase: testenv.GetObject, Do: testenv.Stall, After: -1},
	stallToken:              {Phase: testenv.GetToken, Do: testenv.Stall, After: 10},
}

const googleHost = "storage.googleapis.com"

func newPool(t *testing.T, v variant) *pool {
	config := v.config
	switch {
	case v.google:
		config.CA, config.Names = testenv.SystemCA(t), []string{googleHost}
	case v.tls:
		config.CA = testenv.NewCA(t)
	}
	p := &pool{variant: v, s: testenv.StartGCS(t, config)}
	p.s.Bucket("app")
	p.secrets = sourcetest.Secrets{
		"default/key":   sourcetest.Secret("serviceaccount", string(p.s.Key())),
		"default/other": sourcetest.Secret("serviceaccount", strings.ReplaceAll(string(p.s.Key()), account, "other@example.com")),
		"default/empty": sourcetest.Secret("accesskey", canary),
	}
	if v.tls {
		cert, key := config.CA.Client("headgate")
		p.secrets["default/tls"] = sourcetest.Secret("ca.crt", string(config.CA.PEM()), "tls.crt", string(cert), "tls.key", string(key))
	}
	if v.google {
		p.p = testenv.ServeProxy(t, testenv.Proxy{Username: "proxy", Password: "proxy-" + canary, Hosts: map[string]string{googleHost + ":443": p.s.Host}})
		p.secrets["default/proxy"] = sourcetest.Secret("address", p.p.URL, "username", "proxy", "password", "proxy-"+canary)
	}
	return p
}

// Publish implements [sourcetest.Upstream].
func (p *pool) Publish(tree fstest.MapFS) error {
	p.s.Bucket("app").Replace(buckettest.Objects(tree, ""))
	return nil
}

func (p *pool) Break(d sourcetest.Defect) <-chan struct{} {
	p.defect = d
	return p.s.Break(broken[d])
}

func (p *pool) Object() source.Object {
	b := following(p.s)
	spec := &b.Spec
	if p.variant.config.Account != "" {
		spec.SecretRef = ref("key")
	}
	if p.variant.tls {
		spec.CertSecretRef = ref("tls")
	}
	if p.variant.google {
		spec.Endpoint, spec.ProxySecretRef = googleHost, ref("proxy")
	}
	if p.variant.spec != nil {
		p.variant.spec(p, spec)
	}
	switch p.defect {
	case sourcetest.Invalid:
		spec.Endpoint = "no host at all"
	case sourcetest.NoSecret:
		spec.SecretRef = ref("absent")
	case otherKey:
		spec.SecretRef = ref("other")
	case noKey:
		spec.SecretRef = ref("empty")
	case noBucket:
		spec.BucketName = "other"
	}
	return b
}

func (p *pool) Origin(obj source.Object) source.Origin {
	env := source.Env{Secrets: p.secrets}
	if p.variant.google {
		env.Login = func(_ context.Context, r source.LoginRequest) (source.Credential, error) {
			if p.defect == noLogin || r.URL.String() != "gs://"+googleHost+"/app" {
				return source.Credential{}, fmt.Errorf("%w: not for %s", source.ErrProvider, r.URL)
			}
			return source.Credential{Token: canary}, nil
		}
	}
	return bucket.New(obj.(*source.Bucket), env, providers)
}

func (p *pool) Traffic() sourcetest.Traffic {
	return sourcetest.Traffic{Requests: p.s.Count(), Content: p.s.ContentBytes()}
}

func (p *pool) Secrets() []string {
	_, body, _ := strings.Cut(string(p.s.Key()), `PRIVATE KEY-----\n`)
	return append(p.s.Tokens(), canary, body[:60])
}

// variants are the combinations that run the whole suite.
var variants = map[string]variant{
	"key of a service account": {
		config: testenv.GCSConfig{Account: account},
		kind: func(k *sourcetest.Kind) {
			k.Failures = slices.DeleteFunc(k.Failures, func(f sourcetest.Failure) bool { return f.Defect == cut }) // as Truncated, and slow
			k.Failures = append(k.Failures,
				sourcetest.Fails(sourcetest.NoSecret, "AuthenticationFailed", "default/absent"),
				sourcetest.Fails(otherKey, "AuthenticationFailed", "invalid_grant: Invalid grant: account not found"),
				sourcetest.Fails(noKey, "AuthenticationFailed", "secret default/empty: key serviceaccount is missing"),
				sourcetest.Fails(noToken, "AuthenticationFailed", "400 Bad Request: invalid_grant: Invalid JWT Signature: check that the key was not deleted"),
				sourcetest.Fails(leakyToken, "AuthenticationFailed", "invalid_grant"),
				sourcetest.Fails(busyToken, "AuthenticationFailed", "503 Service Unavailable"))
			k.Stalls = append(k.Stalls, stallToken)
		},
	},
	"anonymous, small pages after empty ones": {
		config: testenv.GCSConfig{PageSize: 2, Empty: true},
		kind:   func(k *sourcetest.Kind) { k.Only(sourcetest.Gone, cut, flipped) },
	},
	"mutual TLS, tokens that end": {
		config: testenv.GCSConfig{Account: account, Mutual: true, PageSize: 3, Uses: 4},
		tls:    true,
		spec:   func(p *pool, s *source.BucketSpec) { s.Endpoint = p.s.Base + "/storage/v1/" },
		kind:   func(k *sourcetest.Kind) { k.Only(sourcetest.Denied, changes) },
	},
	"identity of the program, by a proxy": {
		config: testenv.GCSConfig{Token: canary},
		google: true,
		kind: func(k *sourcetest.Kind) {
			k.Only(sourcetest.Denied, sourcetest.Leaking, vanishes)
			k.Failures = append(k.Failures, sourcetest.Fails(noLogin, "InvalidProviderConfiguration", "log in with provider gcp"))
		},
	},
}

func TestConformance(t *testing.T) {
	buckettest.Run(t, variants, func(t *testing.T, v variant) sourcetest.Upstream { return newPool(t, v) }, func(k *sourcetest.Kind, v variant) {
		k.Failures = append(k.Failures,
			sourcetest.Fails(sourcetest.Gone, "BucketOperationFailed", "notFound"),
			sourcetest.Fails(noBucket, "BucketOperationFailed", "notFound"),
			sourcetest.Fails(flipped, "BucketOperationFailed", ""),
			sourcetest.Fails(loop, "BucketOperationFailed", "repeats a page token"),
			sourcetest.Fails(unmatched, "BucketOperationFailed", ""))
		if v.kind != nil {
			v.kind(k)
		}
	})
}
