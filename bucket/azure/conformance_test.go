package azure_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/azure"
	"github.com/headgate-io/headgate/bucket/internal/buckettest"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A pool is a container of a storage account, for the conformance suite.
type pool struct {
	s       *testenv.Azblob
	p       *testenv.ProxyServer // nil for none
	variant variant
	secrets sourcetest.Secrets
	defect  sourcetest.Defect
}

// A variant is one way to reach a container, and what it holds.
type variant struct {
	config testenv.AzblobConfig
	tls    bool
	proxy  bool
	login  bool // the identity of the program has the token of the configuration
	under  string
	keys   func(s *testenv.Azblob) []string // of the Secret, nil for none
	spec   func(p *pool, s *source.BucketSpec)
	kind   func(*sourcetest.Kind)
}

// The defects beyond those of the suite.
const (
	wrongKey    sourcetest.Defect = "wrong key"
	noContainer                   = buckettest.NoBucket
	vanishes                      = buckettest.Vanishes
	changes                       = buckettest.Changes
	archived    sourcetest.Defect = "archived blob"
	refused                       = buckettest.Refused
	cut                           = buckettest.Cut
	longer      sourcetest.Defect = "longer than listed"
	otherETag   sourcetest.Defect = "another ETag"
	noIdentity  sourcetest.Defect = "no identity"
	stallBlob                     = buckettest.StallObject
	stallToken  sourcetest.Defect = "stall token"
	stallFind   sourcetest.Defect = "stall authority"
)

func of(phase testenv.Phase, d *testenv.Defect) *testenv.Defect {
	d.Phase = phase
	return d
}

// broken translates the defects that are the server's.
var broken = map[sourcetest.Defect]*testenv.Defect{
	sourcetest.Gone:         of(testenv.ListObjects, testenv.AzureFailure(404, "ContainerNotFound", "The specified container does not exist.")),
	sourcetest.Denied:       of(testenv.ListObjects, testenv.AzureFailure(403, "AuthorizationPermissionMismatch", "This request is not authorized.")),
	sourcetest.Leaking:      {Phase: testenv.ListObjects, Do: testenv.Leak, Status: 400},
	sourcetest.Truncated:    {Phase: testenv.GetObject, Do: testenv.End},
	cut:                     {Phase: testenv.GetObject, Do: testenv.Cut},
	longer:                  {Phase: testenv.GetObject, Do: testenv.Swell, After: 1},
	otherETag:               of(testenv.GetObject, testenv.With("ETag", `"other"`)),
	refused:                 of(testenv.GetObject, testenv.AzureFailure(403, "AuthorizationFailure", "This request is not authorized.")),
	archived:                of(testenv.GetObject, testenv.AzureFailure(409, "BlobArchived", "This operation is not permitted on an archived blob.")),
	vanishes:                of(testenv.GetObject, testenv.AzureFailure(404, "BlobNotFound", "The specified blob does not exist.")),
	changes:                 of(testenv.GetObject, testenv.AzureFailure(412, "ConditionNotMet", "The condition is not met.")),
	sourcetest.StallResolve: {Phase: testenv.ListObjects, Do: testenv.Stall, After: -1},
	sourcetest.StallFetch:   {Phase: testenv.GetObject, Do: testenv.Stall, After: 1},
	stallBlob:               {Phase: testenv.GetObject, Do: testenv.Stall, After: -1},
	stallToken:              {Phase: testenv.GetToken, Do: testenv.Stall, After: 10},
	stallFind:               {Phase: testenv.FindAuthority, Do: testenv.Stall, After: -1},
}

func newPool(t *testing.T, v variant) *pool {
	config := v.config
	if v.tls {
		config.CA = testenv.NewCA(t)
	}
	p := &pool{variant: v, s: testenv.StartAzblob(t, config), secrets: sourcetest.Secrets{}}
	p.s.Container("content")
	if v.keys != nil {
		p.secrets["default/keys"] = sourcetest.Secret(v.keys(p.s)...)
	}
	p.secrets["default/wrong"] = sourcetest.Secret("accountKey", "AAAA"+key)
	if ca := config.CA; ca != nil {
		cert, private := ca.Client("user")
		p.secrets["default/tls"] = sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(private))
	}
	if v.proxy {
		hosts := map[string]string{}
		for _, name := range config.Names {
			hosts[name+":443"] = p.s.Host
		}
		p.p = testenv.ServeProxy(t, testenv.Proxy{Username: "proxy", Password: "proxy-" + password, Hosts: hosts})
		p.secrets["default/proxy"] = sourcetest.Secret("address", p.p.URL, "username", "proxy", "password", "proxy-"+password)
	}
	return p
}

// Publish implements [sourcetest.Upstream].
func (p *pool) Publish(tree fstest.MapFS) error {
	p.s.Container("content").Replace(buckettest.Objects(tree, p.variant.under))
	return nil
}

func (p *pool) Break(d sourcetest.Defect) <-chan struct{} {
	p.defect = d
	return p.s.Break(broken[d])
}

func ref(name string) *source.LocalReference { return &source.LocalReference{Name: name} }

func (p *pool) Object() source.Object {
	b := &source.Bucket{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "Bucket", Metadata: source.Metadata{Name: "app", Namespace: "default"}},
		Spec: source.BucketSpec{Provider: "azure", BucketName: "content", Endpoint: p.s.URL, Insecure: strings.HasPrefix(p.s.URL, "http:"),
			Interval: source.Duration(time.Hour), Timeout: source.Duration(time.Minute)},
	}
	spec := &b.Spec
	if p.variant.keys != nil {
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
	case noContainer:
		spec.BucketName = "other"
	}
	return b
}

func (p *pool) Origin(obj source.Object) source.Origin {
	env := source.Env{Secrets: p.secrets}
	if p.variant.login {
		env.Login = func(context.Context, source.LoginRequest) (source.Credential, error) {
			if p.defect == noIdentity {
				return source.Credential{}, fmt.Errorf("the application is not there: %w", fs.ErrPermission)
			}
			return source.Credential{Token: p.variant.config.Bearer[0]}, nil
		}
	}
	return bucket.New(obj.(*source.Bucket), env, map[string]bucket.Provider{"azure": azure.Connect})
}

func (p *pool) Traffic() sourcetest.Traffic {
	return sourcetest.Traffic{Requests: p.s.Count(), Content: p.s.ContentBytes()}
}

func (p *pool) Secrets() []string { return append(p.s.Issued(), planted()...) }

// variants are the combinations that run the whole suite.
var variants = map[string]variant{
	"account key": {
		config: testenv.AzblobConfig{Key: key},
		keys:   func(*testenv.Azblob) []string { return []string{"accountKey", key} },
		kind: func(k *sourcetest.Kind) {
			k.Failures = append(k.Failures, sourcetest.Fails(wrongKey, "AuthenticationFailed", "check the credentials, and the clock"))
		},
	},
	"signature in a Secret, TLS, small pages, directories": {
		config: testenv.AzblobConfig{SAS: sas, PageSize: 2, Hierarchical: true}, tls: true,
		keys: func(*testenv.Azblob) []string { return []string{"sasKey", sas} },
		kind: func(k *sourcetest.Kind) { k.Only(sourcetest.Denied, sourcetest.Leaking, archived) },
	},
	"signature in the URL, mutual TLS, below a prefix": {
		config: testenv.AzblobConfig{SAS: sas, Mutual: true}, tls: true, under: "some/where",
		spec: func(_ *pool, s *source.BucketSpec) { s.Endpoint += "?" + sas },
		kind: func(k *sourcetest.Kind) {
			k.Only(sourcetest.Gone, sourcetest.Denied, sourcetest.Leaking, refused, cut, changes)
		},
	},
	"application": {
		config: testenv.AzblobConfig{Tenant: tenant, Client: "app", Secret: password}, tls: true,
		keys: func(s *testenv.Azblob) []string {
			return []string{"tenantId", tenant, "clientId", "app", "clientSecret", password, "authorityHost", s.Base}
		},
		kind: func(k *sourcetest.Kind) {
			k.Only(sourcetest.Denied, sourcetest.Leaking, vanishes)
			k.Stalls = append(k.Stalls, stallToken, stallFind)
		},
	},
	"public, by a proxy, host of the account": {
		config: testenv.AzblobConfig{Names: []string{"acme.blob.core.windows.net"}}, tls: true, proxy: true,
		spec: func(_ *pool, s *source.BucketSpec) { s.Endpoint = "https://acme.blob.core.windows.net/" },
		kind: func(k *sourcetest.Kind) { k.Only(sourcetest.Gone, otherETag) },
	},
	"identity of the program": {
		config: testenv.AzblobConfig{Bearer: []string{"cAnArY-token"}}, login: true,
		kind: func(k *sourcetest.Kind) {
			k.Only(sourcetest.Denied, sourcetest.Leaking)
			k.Failures = append(k.Failures, sourcetest.Fails(noIdentity, "AuthenticationFailed", "the application is not there"))
		},
	},
}

func TestConformance(t *testing.T) {
	buckettest.Run(t, variants, func(t *testing.T, v variant) sourcetest.Upstream { return newPool(t, v) }, func(k *sourcetest.Kind, v variant) {
		k.Under = v.under
		k.Failures = append(k.Failures,
			sourcetest.Fails(sourcetest.Gone, "BucketOperationFailed", "ContainerNotFound"),
			sourcetest.Fails(noContainer, "BucketOperationFailed", "check spec.bucketName"),
			sourcetest.Fails(sourcetest.NoSecret, "AuthenticationFailed", "default/absent"),
			sourcetest.Fails(longer, "BucketOperationFailed", ""),
			sourcetest.Fails(otherETag, "BucketOperationFailed", ""),
			sourcetest.Fails(archived, "BucketOperationFailed", "rehydrate"))
		if v.kind != nil {
			v.kind(k)
		}
	})
}
