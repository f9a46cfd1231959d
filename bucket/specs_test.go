package bucket_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// TestSpecs checks that an invalid spec fails with the reason, without any request.
func TestSpecs(t *testing.T) {
	t.Parallel()
	type row struct {
		edit   func(*source.BucketSpec)
		reason string
	}
	named := func(name string) row { return row{func(b *source.BucketSpec) { b.BucketName = name }, ""} }
	at := func(endpoint string) row {
		return row{func(b *source.BucketSpec) { b.Endpoint = endpoint }, "URLInvalid"}
	}
	withQuery := func(query string) row { return row{func(b *source.BucketSpec) { b.Endpoint += query }, "URLInvalid"} }
	for m, rows := range map[*storeMaker]map[string]row{
		aws: {
			"spec.bucketName is no name of a bucket": named("ab"), "spec.bucketName; path": named("bucket/../other"), "spec.bucketName; query": named("bucket?x=canary"), "spec.bucketName; address": named("10.0.0.1"),
			"spec.region is no name of a region":            {func(b *source.BucketSpec) { b.Region = "eu/west" }, ""},
			"spec.bucketName is that of a directory bucket": {func(b *source.BucketSpec) { b.BucketName, b.Provider = "app--use1-az4--x-s3", "aws" }, ""},
			"spec.endpoint": at("https://u:canary@h"),
		},
		google: {"spec.insecure": {func(b *source.BucketSpec) { b.Endpoint, b.Insecure = "http://127.0.0.1:1", false }, "URLInvalid"}},
		microsoft: {
			"spec.endpoint": at("a b"), "spec.insecure": {func(s *source.BucketSpec) { s.Insecure = false }, "URLInvalid"}, "spec.endpoint; credentials": at("https://cAnArY@store.example"),
			"the query cannot be parsed": withQuery("?sig=cAnArY%zz"), "the query has comp": withQuery("?comp=cAnArY"), "is no shared access signature": withQuery("?cAnArY/x"),
			"spec.bucketName is not the name of a container": named("Content"), "spec.bucketName; short": named("ab"), "spec.bucketName; long": named(strings.Repeat("a", 64)),
			"spec.bucketName; hyphens": named("a--b"), "spec.bucketName; hyphen at the end": named("abc-"), "spec.bucketName; special": named("$other"),
		},
	} {
		s := m.start(t, testenv.StoreConfig{})
		for name, c := range rows {
			a := m.access(s)
			c.edit(a.Spec)
			_, err := m.connect(t.Context(), a)
			say, _, _ := strings.Cut(name, "; ")
			requireError(t, s, err, say)
			if requireReason(t, err, c.reason, true); s.Count() > 0 || t.Failed() {
				t.Fatalf("%s, %s: %v", m.provider, name, err)
			}
		}
	}
	for _, name := range []string{"$root", "$web", "$logs", "abc", "a-b-c", "0ab", strings.Repeat("a", 63)} {
		s := microsoft.start(t, testenv.StoreConfig{})
		s.Bucket(name).Put("a", "1")
		a := microsoft.access(s)
		a.Spec.BucketName = name
		object(t, microsoft.connected(t, a))
	}
}

// TestEndpoints tests the spellings of endpoints. With Azure the account is the first label of
// the host, or the path.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	s := google.filled(t, testenv.StoreConfig{}, "a", "one")
	for _, endpoint := range []string{s.Host, s.Base, s.Base + "/", s.Base + "/storage/v1", s.Base + "/storage/v1/"} {
		a := google.access(s)
		a.Spec.Endpoint = endpoint
		object(t, google.connected(t, a))
	}
	ca := testenv.NewCA(t)
	for endpoint, account := range map[string]string{
		"https://acme.blob.core.windows.net": "acme", "https://acme.blob.core.windows.net/": "acme", "https://store.example": "store",
		"http://azurite.tools.svc:10000/devstoreaccount": "devstoreaccount", "http://127.0.0.1:10000/devstoreaccount/": "devstoreaccount", "http://localhost:10000/devstoreaccount": "devstoreaccount",
	} {
		config := testenv.StoreConfig{Key: accountKey, Account: account}
		if strings.HasPrefix(endpoint, "https:") {
			config.CA, config.Names = ca, []string{"acme.blob.core.windows.net", "store.example"}
		}
		s := microsoft.filled(t, config, "a", "1")
		a := microsoft.access(s, "accountKey", accountKey)
		a.Spec.Endpoint, a.Spec.Insecure, a.Transport.TLS = endpoint, true, trusting(t, ca, nil)
		_, a.Transport.Proxy = proxyTo(t, s, "acme.blob.core.windows.net", "store.example", "azurite.tools.svc", "127.0.0.1", "localhost")
		object(t, microsoft.connected(t, a))
	}
}

// TestEnvironment checks that the GCS driver ignores environment variables.
func TestEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"GOOGLE_APPLICATION_CREDENTIALS": "/nowhere", "STORAGE_EMULATOR_HOST": "nowhere.invalid", "GOOGLE_CLOUD_UNIVERSE_DOMAIN": "nowhere.invalid",
		"GOOGLE_API_USE_MTLS_ENDPOINT": "always", "GOOGLE_API_USE_CLIENT_CERTIFICATE": "true", "EXPERIMENTAL_GOOGLE_API_USE_S2A": "true",
		"GOOGLE_SDK_GO_LOGGING_LEVEL": "debug", "HOME": t.TempDir(), "HTTP_PROXY": "http://127.0.0.1:1", "GCE_METADATA_HOST": "127.0.0.1:1",
	} {
		t.Setenv(name, value)
	}
	s := google.filled(t, google.private, "a", "one")
	object(t, google.opened(t, s))
}

// TestRegions checks that a request is retried once in the region that an S3 store names,
// and that later requests use that region.
func TestRegions(t *testing.T) {
	t.Parallel()
	config := aws.private
	config.Region, config.PageSize = "eu-west-3", 1
	for region, want := range map[string]int{"": 3, "eu-west-3": 2, "us-west-2": 3} {
		s := aws.filled(t, config, "a", "1", "b", "2")
		a := aws.access(s, aws.secret(s)...)
		a.Spec.Region = region
		d := aws.connected(t, a)
		all, err := list(t.Context(), d, "")
		if err != nil || len(all) != 2 || s.Count() != want {
			t.Errorf("region %q: %v, %v, %d requests", region, all, err, s.Count())
		}
	}
	moved := func(status int, region, code string) *testenv.Defect {
		return answer(status, "<Error><Code>"+code+"</Code></Error>", "X-Amz-Bucket-Region", region)
	}
	for say, c := range map[string]struct {
		defect   *testenv.Defect
		requests int
	}{
		"400 Bad Request: AuthorizationHeaderMalformed": {moved(301, "eu-west-1", "PermanentRedirect"), 2},
		"301 Moved Permanently: PermanentRedirect":      {moved(301, "../../canary", "PermanentRedirect"), 1},
		"set spec.region to that of the bucket":         {moved(400, "us-east-1", "AuthorizationHeaderMalformed"), 1},
		"check spec.bucketName":                         {moved(404, "us-east-1", "NoSuchBucket"), 1},
		"that is no store of S3, or its console":        {moved(405, "us-east-1", "MethodNotAllowed"), 1},
	} {
		s := aws.filled(t, aws.private)
		s.Break(c.defect)
		if _, err := list(t.Context(), aws.opened(t, s), ""); s.Count() != c.requests {
			t.Errorf("%d requests, %v", s.Count(), err)
		} else if c.requests == 1 {
			requireError(t, s, err, say)
		}
	}
	s, n := aws.filled(t, testenv.StoreConfig{}), 0
	s.Break(handled(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		n++
		w.Header().Set("X-Amz-Bucket-Region", fmt.Sprintf("eu-west-%d", n))
		w.WriteHeader(http.StatusMovedPermanently)
	}))
	d := aws.connected(t, aws.access(s))
	for range 10 {
		_, err := list(t.Context(), d, "")
		requireError(t, s, err, "301 Moved Permanently|set spec.endpoint and spec.region")
	}
	if s.Count() != 20 { // each request is retried once
		t.Errorf("%d requests", s.Count())
	}
}

// TestHosts checks that with AWS bucket and region are parts of the host, and that the host
// changes when the store names another region.
func TestHosts(t *testing.T) {
	t.Parallel()
	const east, west = "s3.us-east-1.amazonaws.com", "s3.eu-west-3.amazonaws.com"
	for name, c := range map[string]struct {
		endpoint, region, bucket string
		hosts                    []string // in the order of the requests
	}{
		"right":     {west, "", "app", []string{"app." + west}},
		"wrong":     {east, "", "app", []string{"app." + east, "app." + west}},
		"global":    {"s3.amazonaws.com:443", "eu-west-3", "app", []string{"app." + west}},
		"dots":      {west, "", "buc.ket", []string{west}},
		"uppercase": {west, "", "Bucket", []string{west}},
	} {
		ca := testenv.NewCA(t)
		s := aws.start(t, testenv.StoreConfig{AccessKey: accessKey, SecretKey: canary, CA: ca, Mutual: true, Region: "eu-west-3", Names: []string{east, west}})
		s.Bucket(c.bucket).Put("dir/a", "1")
		a := aws.access(s, aws.secret(s)...)
		proxy, proxyFunc := proxyTo(t, s, east, west)
		a.Transport.Proxy, a.Transport.TLS, a.Spec.Endpoint, a.Spec.Region, a.Spec.BucketName = proxyFunc, trusting(t, ca, ca), c.endpoint, c.region, c.bucket
		d := aws.connected(t, a)
		if text, err := read(t.Context(), d, object(t, d), 0); text != "1" || err != nil {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		testenv.Equal(t, strings.Join(proxy.Requests(), " "), "CONNECT "+strings.Join(c.hosts, ":443 CONNECT ")+":443", name)
		for _, q := range s.Requests() {
			testenv.Equal(t, q.Certificate, "reader", "%s: %s: certificate", name, q.Path)
		}
	}
}

// TestHints checks that errors explain problems with TLS, the keys or the clock.
func TestHints(t *testing.T) {
	t.Parallel()
	ca := testenv.NewCA(t)
	secure := testenv.StoreConfig{AccessKey: accessKey, SecretKey: canary, CA: ca, Mutual: true}
	late, early := time.Now().Add(-24*time.Hour), time.Now().Add(2*time.Hour)
	dated := func(code string, at time.Time) *testenv.Defect {
		d := testenv.S3Failure(403, code, "The difference is too large.")
		d.Header.Set("Date", at.UTC().Format(http.TimeFormat))
		return d
	}
	keys := func(access, secret string) func(*bucket.Access) {
		return func(a *bucket.Access) {
			a.Secret = secretOf(a.SecretReader, "secret", "accesskey", access, "secretkey", secret)
		}
	}
	none := func(a *bucket.Access) { a.Spec.SecretRef, a.Secret.Name, a.Secret.Data = nil, "", nil }
	signed := func(query string) func(*bucket.Access) {
		return func(a *bucket.Access) { a.Secret = secretOf(a.SecretReader, "secret", "sasKey", query) }
	}
	for _, c := range []struct {
		*storeMaker
		config testenv.StoreConfig
		edit   func(*bucket.Access)
		defect *testenv.Defect
		shift  time.Duration
		say    string
	}{
		{aws, secure, func(a *bucket.Access) { a.Transport.TLS = trusting(t, ca, nil) }, nil, 0, "list objects at 127.0.0.1:|certificate"},
		{aws, secure, nil, nil, 0, "list objects at 127.0.0.1:|certificate"},
		{aws, secure, func(a *bucket.Access) { a.Spec.Insecure = true }, nil, 0, "400 Bad Request|the server speaks TLS: remove spec.insecure"},
		{aws, aws.private, func(a *bucket.Access) { a.Spec.Insecure = false }, nil, 0, "the server speaks no TLS: set spec.insecure"},
		{aws, aws.private, func(a *bucket.Access) {
			a.Spec.Endpoint = testenv.Listen(t, func(c net.Conn) { c.Read(make([]byte, 1)); io.WriteString(c, "\x15\x03\x01\x00\x02\x02\x16") })
		}, nil, 0, "list objects at 127.0.0.1:|the server speaks TLS: remove spec.insecure"},
		{aws, aws.private, none, nil, 0, "list objects: 403 Forbidden: AccessDenied|set spec.secretRef to a Secret with accesskey and secretkey"},
		{aws, aws.private, keys(accessKey, "other-"+canary), nil, 0, "403 Forbidden: SignatureDoesNotMatch|check secretkey in the Secret of spec.secretRef"},
		{aws, aws.private, keys("other", canary), nil, 0, "403 Forbidden: InvalidAccessKeyId|check accesskey in the Secret of spec.secretRef"},
		{aws, aws.private, nil, dated("RequestTimeTooSkewed", early), 0, "the clock of this machine says |that of the server"},
		{aws, aws.private, nil, dated("AccessDenied", late), 0, "403 Forbidden: AccessDenied|that of the server"},
		{aws, aws.private, nil, dated("RequestTimeTooSkewed", time.Now()), 0, "check the clocks of this machine and of the store"},
		{aws, aws.private, nil, nil, 16 * time.Minute, "RequestTimeTooSkewed|clock"},
		{google, google.private, none, nil, 0, "401 Unauthorized: required: |the request was anonymous: set spec.secretRef"},
		{google, testenv.StoreConfig{}, func(a *bucket.Access) { none(a); a.Spec.BucketName = "absent" }, nil, 0, "list objects: 404 Not Found: notFound: The specified bucket does not exist"},
		{google, google.private, nil, answer(429, "", "Retry-After", "7200"), 0, "raise spec.interval|2h0m0s"},
		{microsoft, microsoft.private, func(a *bucket.Access) { a.Secret = secretOf(a.SecretReader, "secret", "accountKey", "AAAA"+accountKey) }, nil, 0, "AuthenticationFailed: Server failed to authenticate the request|check the credentials, and the clock"},
		{microsoft, microsoft.private, none, nil, 0, "no credentials were sent: name a Secret in spec.secretRef"},
		{microsoft, testenv.StoreConfig{SAS: "sp=r&sig=cAnArY"}, signed("sp=r&sig=cAnArY"), nil, 0, "AuthorizationPermissionMismatch: This request is not authorized|the shared access signature the permissions r and l"},
		{microsoft, testenv.StoreConfig{SAS: "se=2020-01-01T00:00:00Z&sig=cAnArY"}, signed("se=2020-01-01T00:00:00Z&sig=cAnArY"), nil, 0, "whether a shared access signature has expired"},
		{microsoft, microsoft.private, nil, nil, 20 * time.Minute, "the clock of this machine says"},
		{microsoft, microsoft.private, func(a *bucket.Access) { a.Spec.BucketName = "absent" }, nil, 0, "ContainerNotFound|check spec.bucketName"},
	} {
		s := c.filled(t, c.config, "a", "1")
		a := c.access(s, c.secret(s)...)
		if c.edit != nil {
			c.edit(a)
		}
		d := c.connected(t, a)
		s.Break(c.defect)
		s.Shift(c.shift)
		_, err := list(t.Context(), d, "")
		requireError(t, s, err, c.say)
	}
}
