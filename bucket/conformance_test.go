package bucket_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/internal/buckettest"
	"github.com/headgate-io/headgate/bucket/s3"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// canary is a secret key that may show nowhere.
const canary = "cAnArY+secret/key="

// secretForms are the canary as it may come to show.
var secretForms = []string{canary, url.QueryEscape(canary), url.PathEscape(canary), strings.ReplaceAll(canary, "/", `\/`)}

// providers are those of S3.
var providers = map[string]bucket.Provider{"generic": s3.Connect, "aws": s3.Connect}

// following returns a Bucket that follows the bucket app of a server.
func following(s *testenv.S3) *source.Bucket {
	b := &source.Bucket{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "Bucket",
			Metadata: source.Metadata{Name: "app", Namespace: "default"}},
		Spec: source.BucketSpec{BucketName: "app", Endpoint: s.Host, Interval: source.Duration(time.Hour), Timeout: source.Duration(time.Minute)},
	}
	b.Spec.Insecure = strings.HasPrefix(s.Base, "http:")
	return b
}

// A pool is a bucket of an object store, for the conformance suite.
type pool struct {
	s       *testenv.S3
	p       *testenv.ProxyServer // nil for none
	variant variant
	secrets secrets
	defect  sourcetest.Defect
}

// A variant is one way to reach a bucket, and what it holds.
type variant struct {
	config testenv.S3Config
	tls    bool
	proxy  bool
	aws    bool // keys are those that provider aws issues
	under  string
	spec   func(p *pool, s *source.BucketSpec)
	kind   func(*sourcetest.Kind)
}

// The defects beyond those of the suite.
const (
	wrongKey    sourcetest.Defect = "wrong key"
	unknownKey  sourcetest.Defect = "unknown key"
	noBucket                      = buckettest.NoBucket
	vanishes                      = buckettest.Vanishes
	changes                       = buckettest.Changes
	refused                       = buckettest.Refused
	cut                           = buckettest.Cut
	longer      sourcetest.Defect = "longer than listed"
	otherETag   sourcetest.Defect = "another ETag"
	noLDAP      sourcetest.Defect = "wrong LDAP password"
	noIdentity  sourcetest.Defect = "no identity"
	stallObject                   = buckettest.StallObject
	stallToken  sourcetest.Defect = "stall token service"
)

func of(phase testenv.Phase, d *testenv.Defect) *testenv.Defect {
	d.Phase = phase
	return d
}

// defects translates the defects that are the server's.
var defects = map[sourcetest.Defect]*testenv.Defect{
	sourcetest.Gone:         testenv.S3Failure(404, "NoSuchBucket", "The specified bucket does not exist"),
	sourcetest.Denied:       testenv.S3Failure(403, "AccessDenied", "Access Denied"),
	sourcetest.Leaking:      {Do: testenv.Leak, Status: 400},
	sourcetest.Truncated:    {Phase: testenv.GetObject, Do: testenv.End},
	cut:                     {Phase: testenv.GetObject, Do: testenv.Cut},
	longer:                  {Phase: testenv.GetObject, Do: testenv.Swell, After: 1},
	otherETag:               of(testenv.GetObject, testenv.With("ETag", `"other"`)),
	refused:                 of(testenv.GetObject, testenv.S3Failure(403, "AccessDenied", "Access Denied")),
	vanishes:                of(testenv.GetObject, testenv.S3Failure(404, "NoSuchKey", "The specified key does not exist.")),
	changes:                 of(testenv.GetObject, testenv.S3Failure(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")),
	sourcetest.StallResolve: {Phase: testenv.ListObjects, Do: testenv.Stall, After: -1},
	sourcetest.StallFetch:   {Phase: testenv.GetObject, Do: testenv.Stall, After: 1},
	stallObject:             {Phase: testenv.GetObject, Do: testenv.Stall, After: -1},
	stallToken:              {Phase: testenv.AssumeRole, Do: testenv.Stall, After: 10},
}

func newPool(t *testing.T, v variant) *pool {
	config := v.config
	if v.tls {
		config.CA = testenv.NewCA(t)
	}
	p := &pool{variant: v, s: testenv.StartS3(t, config)}
	p.s.Bucket("app")
	p.secrets = secrets{
		"keys":    data("accesskey", "AKIA", "secretkey", canary),
		"wrong":   data("accesskey", "AKIA", "secretkey", "other-"+canary),
		"unknown": data("accesskey", "other", "secretkey", canary),
		"ldap":    data("username", "user", "password", canary),
		"noldap":  data("username", "user", "password", "other-"+canary),
		"web":     data("token", canary),
	}
	if ca := config.CA; ca != nil {
		cert, key := ca.Client("user")
		p.secrets["tls"] = data("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key))
	}
	if v.proxy {
		hosts := map[string]string{}
		for _, name := range config.Names {
			hosts[name+":443"], hosts["app."+name+":443"] = p.s.Host, p.s.Host
		}
		p.p = testenv.ServeProxy(t, testenv.Proxy{Username: "proxy", Password: "proxy-" + canary, Hosts: hosts})
		p.secrets["proxy"] = data("address", p.p.URL, "username", "proxy", "password", "proxy-"+canary)
	}
	return p
}

// Publish implements [sourcetest.Upstream].
func (p *pool) Publish(tree fstest.MapFS) error {
	p.s.Bucket("app").Replace(buckettest.Objects(tree, p.variant.under))
	return nil
}

func (p *pool) Break(d sourcetest.Defect) <-chan struct{} {
	p.defect = d
	return p.s.Break(defects[d])
}

func (p *pool) Object() source.Object {
	b := following(p.s)
	spec := &b.Spec
	if p.variant.config.AccessKey != "" && !p.variant.aws {
		spec.SecretRef = ref("keys")
	}
	if p.variant.tls {
		spec.CertSecretRef = ref("tls")
	}
	if p.variant.proxy {
		spec.ProxySecretRef = ref("proxy")
	}
	if p.variant.under != "" {
		spec.Prefix = p.variant.under + "/"
	}
	if p.variant.spec != nil {
		p.variant.spec(p, spec)
	}
	switch p.defect {
	case sourcetest.Invalid:
		spec.Endpoint = "no host at all"
	case sourcetest.NoSecret:
		spec.SecretRef = ref("absent")
	case wrongKey:
		spec.SecretRef = ref("wrong")
	case unknownKey:
		spec.SecretRef = ref("unknown")
	case noBucket:
		spec.BucketName = "other"
	case noLDAP:
		spec.STS.SecretRef = ref("noldap")
	}
	return b
}

func (p *pool) Origin(obj source.Object) source.Origin {
	env := source.Env{Secrets: p.secrets}
	if p.variant.aws {
		env.Login = func(context.Context, source.LoginRequest) (source.Credential, error) {
			if p.defect == noIdentity {
				return source.Credential{}, fmt.Errorf("the role is not there: %w", fs.ErrPermission)
			}
			return source.Credential{Username: "AKIA", Password: canary, Token: "token-" + canary}, nil
		}
	}
	return bucket.New(obj.(*source.Bucket), env, providers)
}

func (p *pool) Traffic() sourcetest.Traffic {
	return sourcetest.Traffic{Requests: p.s.Count(), Content: p.s.ContentBytes()}
}

func (p *pool) Secrets() []string {
	return append(p.s.Signatures(), secretForms...)
}

// variants are the combinations that run the whole suite.
var variants = map[string]variant{
	"keys": {
		config: testenv.S3Config{AccessKey: "AKIA", SecretKey: canary},
		kind: func(k *sourcetest.Kind) {
			k.Failures = append(k.Failures,
				sourcetest.Fails(wrongKey, "AuthenticationFailed", "SignatureDoesNotMatch"),
				sourcetest.Fails(unknownKey, "AuthenticationFailed", "InvalidAccessKeyId"))
		},
	},
	"anonymous, small pages, in parts": {
		config: testenv.S3Config{AccessKey: "AKIA", SecretKey: canary, Anonymous: true, PageSize: 2, Multipart: true},
		spec:   func(_ *pool, s *source.BucketSpec) { s.SecretRef = nil },
		kind:   func(k *sourcetest.Kind) { only(k, sourcetest.Gone, cut) },
	},
	"mutual TLS, another region, unordered": {
		config: testenv.S3Config{AccessKey: "AKIA", SecretKey: canary, Mutual: true, Region: "eu-west-3", PageSize: 3,
			Arrange: func(keys []string) []string { slices.Reverse(keys); return keys }},
		tls:  true,
		kind: func(k *sourcetest.Kind) { only(k, sourcetest.Denied, sourcetest.NoSecret, changes) },
	},
	"below a prefix, by a proxy": {
		config: testenv.S3Config{AccessKey: "AKIA", SecretKey: canary}, under: "some/where", proxy: true,
		kind: func(k *sourcetest.Kind) { only(k, sourcetest.Denied, sourcetest.Leaking, sourcetest.Truncated) },
	},
	"temporary keys of LDAP": {
		config: testenv.S3Config{LDAPUsername: "user", LDAPPassword: canary},
		spec: func(p *pool, s *source.BucketSpec) {
			s.STS = &source.BucketSTSSpec{Provider: "ldap", Endpoint: p.s.Base, SecretRef: ref("ldap")}
		},
		kind: func(k *sourcetest.Kind) {
			tokens(k)
			k.Failures = append(k.Failures, sourcetest.Fails(noLDAP, "AuthenticationFailed", ""))
		},
	},
	"temporary keys of a web identity, TLS": {
		config: testenv.S3Config{WebIdentityToken: canary}, tls: true,
		spec: func(p *pool, s *source.BucketSpec) {
			s.STS = &source.BucketSTSSpec{Provider: "webidentity", Endpoint: p.s.Base, SecretRef: ref("web"), CertSecretRef: ref("tls")}
		},
		kind: tokens,
	},
	"aws, virtual hosts": {
		config: testenv.S3Config{AccessKey: "AKIA", SecretKey: canary, SessionToken: "token-" + canary, Region: "eu-west-3",
			Names: []string{"s3.eu-west-3.amazonaws.com", "s3.dualstack.eu-west-3.amazonaws.com"}},
		tls: true, proxy: true, aws: true,
		spec: func(_ *pool, s *source.BucketSpec) {
			s.Provider, s.Endpoint, s.Region = "aws", "s3.eu-west-3.amazonaws.com", "eu-west-3"
		},
		kind: func(k *sourcetest.Kind) {
			only(k, sourcetest.Gone, sourcetest.Denied, sourcetest.Leaking, vanishes)
			k.Failures = append(k.Failures, sourcetest.Fails(noIdentity, "AuthenticationFailed", "the role is not there"))
		},
	},
}

func TestConformance(t *testing.T) {
	buckettest.Run(t, variants, func(t *testing.T, v variant) sourcetest.Upstream { return newPool(t, v) }, func(k *sourcetest.Kind, v variant) {
		k.Under = v.under
		k.Hostile = append(k.Hostile, "a\xff")
		k.Failures = append(k.Failures,
			sourcetest.Fails(sourcetest.Gone, "BucketOperationFailed", "NoSuchBucket"),
			sourcetest.Fails(noBucket, "BucketOperationFailed", "NoSuchBucket"),
			sourcetest.Fails(sourcetest.NoSecret, "AuthenticationFailed", "default/absent"),
			sourcetest.Fails(longer, "BucketOperationFailed", ""),
			sourcetest.Fails(otherETag, "BucketOperationFailed", ""))
		if v.kind != nil {
			v.kind(k)
		}
	})
}

// only leaves the failures that a variant might have another way to end in, and
// of keys, which do not depend on it, few.
func only(k *sourcetest.Kind, left ...sourcetest.Defect) {
	k.Hostile = k.Hostile[:2]
	k.Only(left...)
}

// tokens is what differs where keys are temporary.
func tokens(k *sourcetest.Kind) {
	only(k, sourcetest.Leaking, sourcetest.Denied)
	for i, f := range k.Failures {
		if f.Defect == sourcetest.Leaking || f.Defect == sourcetest.Denied {
			k.Failures[i].Reason = "AuthenticationFailed"
		}
	}
	k.Stalls = append(k.Stalls, stallToken)
}
