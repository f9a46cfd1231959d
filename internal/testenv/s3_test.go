package testenv_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/headgate-io/headgate/internal/testenv"
)

const secretKey = "cAnArY+secret/key="

// s3Client returns a real client of a server.
func s3Client(t *testing.T, s *testenv.S3, c *credentials.Credentials, h *http.Transport) *minio.Client {
	t.Helper()
	if h == nil {
		h = &http.Transport{}
	}
	t.Cleanup(h.CloseIdleConnections)
	m, err := minio.New(s.Host, &minio.Options{Creds: c, Secure: strings.HasPrefix(s.Base, "https:"), Transport: h, MaxRetries: 1})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// listS3 returns keys and ETags, in the order they came.
func listS3(t *testing.T, m *minio.Client, prefix string) (all []string, err error) {
	t.Helper()
	for o := range m.ListObjectsIter(t.Context(), "app", minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return all, o.Err
		}
		all = append(all, o.Key+" "+o.ETag)
	}
	return all, nil
}

func readS3(t *testing.T, m *minio.Client, key string, set func(*minio.GetObjectOptions) error) (string, error) {
	t.Helper()
	var opts minio.GetObjectOptions
	if set != nil {
		if err := set(&opts); err != nil {
			t.Fatal(err)
		}
	}
	r, _, _, err := (&minio.Core{Client: m}).GetObject(t.Context(), "app", key, opts)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}

func TestS3Admits(t *testing.T) {
	static := credentials.NewStaticV4("AKIA", secretKey, "")
	keys := testenv.S3Config{AccessKey: "AKIA", SecretKey: secretKey}
	elsewhere, public, session := keys, keys, keys
	elsewhere.Region, public.Anonymous, session.SessionToken = "eu-west-3", true, "a token"
	for name, c := range map[string]struct {
		config testenv.S3Config
		with   *credentials.Credentials
		ahead  time.Duration
		code   string // of the refusal
	}{
		"open":                  {config: testenv.S3Config{}},
		"signed":                {config: keys, with: static},
		"signed elsewhere":      {config: elsewhere, with: static}, // the client learns the region by asking
		"nobody":                {config: keys, code: "AccessDenied"},
		"nobody, of the public": {config: public},
		"wrong secret":          {config: keys, with: credentials.NewStaticV4("AKIA", "other", ""), code: "SignatureDoesNotMatch"},
		"wrong key":             {config: keys, with: credentials.NewStaticV4("other", secretKey, ""), code: "InvalidAccessKeyId"},
		"session":               {config: session, with: credentials.NewStaticV4("AKIA", secretKey, "a token")},
		"other session":         {config: session, with: credentials.NewStaticV4("AKIA", secretKey, "another"), code: "InvalidToken"},
		"clock a little ahead":  {config: keys, with: static, ahead: 14 * time.Minute},
		"clock ahead":           {config: keys, with: static, ahead: 16 * time.Minute, code: "RequestTimeTooSkewed"},
		"clock behind":          {config: keys, with: static, ahead: -16 * time.Minute, code: "RequestTimeTooSkewed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := testenv.StartS3(t, c.config)
			s.Shift(c.ahead)
			s.Bucket("app").Put("a key/with ü & more", "content")
			m := s3Client(t, s, c.with, nil)
			all, err := listS3(t, m, "")
			if code := minio.ToErrorResponse(err).Code; code != c.code || err == nil && len(all) != 1 {
				t.Errorf("%v, %v; want code %q", all, err, c.code)
			}
			text, err := readS3(t, m, "a key/with ü & more", nil)
			if code := minio.ToErrorResponse(err).Code; code != c.code || err == nil && text != "content" {
				t.Errorf("%q, %v; want code %q", text, err, c.code)
			}
		})
	}
}

func TestS3Region(t *testing.T) {
	s := testenv.StartS3(t, testenv.S3Config{AccessKey: "AKIA", SecretKey: secretKey, Region: "eu-west-3"})
	s.Bucket("app").Put("a", "content")
	m, err := minio.New(s.Host, &minio.Options{Creds: credentials.NewStaticV4("AKIA", secretKey, ""), Region: "us-west-1", MaxRetries: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readS3(t, m, "a", nil); minio.ToErrorResponse(err).Code != "AuthorizationHeaderMalformed" || minio.ToErrorResponse(err).Region != "eu-west-3" {
		t.Errorf("%+v", err)
	}
}

func TestS3Lists(t *testing.T) {
	keys := []string{"a", "a b/ü", "d/1", "d/2", "d/e/3", "d/f/", "z\xff&+;="}
	for name, config := range map[string]testenv.S3Config{
		"one page": {}, "pages of one": {PageSize: 1}, "pages of two": {PageSize: 2}, "parts": {Multipart: true},
		"backwards": {PageSize: 2, Arrange: func(keys []string) []string { return slices.Sorted(slices.Values(keys)) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := testenv.StartS3(t, config)
			var want []string
			for _, key := range keys {
				want = append(want, key+" "+s.Bucket("app").Put(key, "content of "+key))
			}
			m := s3Client(t, s, nil, nil)
			if got, err := listS3(t, m, ""); err != nil || !slices.Equal(got, want) {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
			if got, err := listS3(t, m, "d/"); err != nil || !slices.Equal(got, want[2:6]) {
				t.Errorf("%q, %v; want %q", got, err, want[2:6])
			}
			var folders []string
			for o := range m.ListObjectsIter(t.Context(), "app", minio.ListObjectsOptions{Prefix: "d/"}) {
				folders = append(folders, o.Key)
			}
			if slices.Sort(folders); !slices.Equal(folders, []string{"d/1", "d/2", "d/e/", "d/f/"}) {
				t.Errorf("with a delimiter %q", folders)
			}
			s.Bucket("app").Remove(keys...)
			if got, err := listS3(t, m, ""); err != nil || len(got) != 0 {
				t.Errorf("%q, %v of an empty bucket", got, err)
			}
		})
	}
}

func TestS3Arranges(t *testing.T) {
	twice := func(keys []string) []string { slices.Reverse(keys); return append(keys, keys[0]) }
	s := testenv.StartS3(t, testenv.S3Config{PageSize: 2, Arrange: twice})
	etag := s.Bucket("app").Put("a", "content")
	for _, key := range []string{"b", "c", "d", "e"} {
		s.Bucket("app").Put(key, "content")
	}
	var want []string
	for _, key := range []string{"e", "d", "c", "b", "a", "e"} {
		want = append(want, key+" "+etag)
	}
	if got, err := listS3(t, s3Client(t, s, nil, nil), ""); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestS3ServesObjects(t *testing.T) {
	s := testenv.StartS3(t, testenv.S3Config{AccessKey: "AKIA", SecretKey: secretKey})
	b := s.Bucket("app")
	first := b.Put("a/b", "0123456789")
	m := s3Client(t, s, credentials.NewStaticV4("AKIA", secretKey, ""), nil)
	match := func(etag string) func(*minio.GetObjectOptions) error {
		return func(o *minio.GetObjectOptions) error { return o.SetMatchETag(etag) }
	}
	from := func(at, to int64) func(*minio.GetObjectOptions) error {
		return func(o *minio.GetObjectOptions) error { return o.SetRange(at, to) }
	}
	for name, c := range map[string]struct {
		key  string
		set  func(*minio.GetObjectOptions) error
		want string // or the code
	}{
		"all":          {"a/b", nil, "0123456789"},
		"as listed":    {"a/b", match(first), "0123456789"},
		"other":        {"a/b", match(strings.Repeat("0", 32)), "PreconditionFailed"},
		"from":         {"a/b", from(4, 0), "456789"},
		"from to":      {"a/b", from(4, 5), "45"},
		"last":         {"a/b", from(0, -3), "789"},
		"behind":       {"a/b", from(10, 0), "InvalidRange"},
		"no such key":  {"a", nil, "NoSuchKey"},
		"no such key/": {"a/b/", nil, "NoSuchKey"},
	} {
		if got, err := readS3(t, m, c.key, c.set); got != c.want && minio.ToErrorResponse(err).Code != c.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if info, err := m.StatObject(t.Context(), "app", "a/b", minio.StatObjectOptions{}); err != nil || info.ETag != first || info.Size != 10 {
		t.Errorf("%+v, %v", info, err)
	}
	if ok, err := m.BucketExists(t.Context(), "app"); err != nil || !ok {
		t.Errorf("%v, %v", ok, err)
	}
	if ok, err := m.BucketExists(t.Context(), "other"); err != nil || ok {
		t.Errorf("%v, %v", ok, err)
	}
	if n := s.Count(testenv.GetObject); n != 9 || s.Count(testenv.HeadObject) != 1 || s.Count(testenv.HeadBucket) != 1 {
		t.Errorf("%d requests", n)
	}
	if n := s.ContentBytes(); n != 10+10+6+2+3 {
		t.Errorf("%d bytes of content", n)
	}
	b.Replace(map[string]string{"x": "y"})
	if got := b.Contents(); len(got) != 1 || got["x"] != "y" {
		t.Errorf("%q", got)
	}
	if s.Reset(); s.Count() != 0 || s.ContentBytes() != 0 {
		t.Error("nothing is forgotten")
	}
}

func TestS3GivesTemporaryKeys(t *testing.T) {
	config := testenv.S3Config{LDAPUsername: "user", LDAPPassword: secretKey, WebIdentityToken: "a token"}
	web := func(s *testenv.S3, token string) *credentials.Credentials {
		c, err := credentials.NewSTSWebIdentity(s.Base, func() (*credentials.WebIdentityToken, error) { return &credentials.WebIdentityToken{Token: token}, nil })
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ldap := func(s *testenv.S3, password string) *credentials.Credentials {
		c, err := credentials.NewLDAPIdentity(s.Base, "user", password)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for name, with := range map[string]func(*testenv.S3, string) *credentials.Credentials{secretKey: ldap, "a token": web} {
		s := testenv.StartS3(t, config)
		s.Bucket("app").Put("a", "content")
		m := s3Client(t, s, with(s, name), nil)
		if _, err := readS3(t, m, "a", nil); err != nil {
			t.Error(err)
		}
		s.Expire()
		if _, err := readS3(t, m, "a", nil); minio.ToErrorResponse(err).Code != "ExpiredToken" {
			t.Errorf("keys that expired: %v", err)
		}
		if _, err := readS3(t, s3Client(t, s, with(s, "wrong"), nil), "a", nil); !strings.Contains(fmt.Sprint(err), "not valid") {
			t.Errorf("%s: wrong credentials: %v", name, err)
		}
		if n := len(s.Signatures()); n < 4 { // two requests, and two secrets
			t.Errorf("%d signatures and temporary keys", n)
		}
	}
	config.Uses, config.Lifetime = 1, 10*time.Minute
	s := testenv.StartS3(t, config)
	s.Bucket("app").Put("a", "content")
	m, err := minio.New(s.Host, &minio.Options{Creds: ldap(s, secretKey), Region: "us-east-1", MaxRetries: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"", "ExpiredToken"} {
		if _, err := readS3(t, m, "a", nil); minio.ToErrorResponse(err).Code != want {
			t.Errorf("keys that are good for one request: %v", err)
		}
	}
}

func TestS3OverTLS(t *testing.T) {
	ca := testenv.NewCA(t)
	s := testenv.StartS3(t, testenv.S3Config{CA: ca, Mutual: true, Names: []string{"s3.example.com"}})
	s.Bucket("app").Put("a", "content")
	pair, err := tls.X509KeyPair(ca.Client("user"))
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
	if text, err := readS3(t, s3Client(t, s, nil, h), "a", nil); err != nil || text != "content" || s.Requests()[0].Certificate != "user" {
		t.Errorf("%q, %v", text, err)
	}
	p := testenv.ServeProxy(t, testenv.Proxy{Hosts: map[string]string{"app.s3.example.com:443": s.Host}})
	through := h.Clone()
	through.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(p.URL) }
	t.Cleanup(through.CloseIdleConnections)
	resp, err := (&http.Client{Transport: through}).Get("https://app.s3.example.com/a")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "content" {
		t.Errorf("virtual host: %q, %v", text, err)
	}
}

func TestS3Misbehaves(t *testing.T) {
	content := strings.Repeat("content ", 1000)
	failure := func(code string) func(string, error) bool {
		return func(_ string, err error) bool { return minio.ToErrorResponse(err).Code == code }
	}
	torn := func(text string, err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) && len(text) == 100 }
	for name, c := range map[string]struct {
		defect *testenv.Defect
		want   func(text string, err error) bool
	}{
		"failure": {testenv.S3Failure(503, "SlowDown", "Please reduce your request rate."), failure("SlowDown")},
		"cut":     {&testenv.Defect{Phase: testenv.GetObject, Do: testenv.Cut, After: 100}, torn},
		"end":     {&testenv.Defect{Phase: testenv.GetObject, Do: testenv.End, After: 100}, func(text string, err error) bool { return err == nil && len(text) == 100 }},
		"flip":    {&testenv.Defect{Phase: testenv.GetObject, Do: testenv.Flip, After: 100}, func(text string, err error) bool { return len(text) == len(content) && text != content }},
		"leak":    {&testenv.Defect{Do: testenv.Leak, Status: 400}, func(_ string, err error) bool { return strings.Contains(fmt.Sprint(err), "AWS4-HMAC-SHA256") }},
		"whole":   {testenv.Without("If-Match"), func(text string, err error) bool { return err == nil && text == content }},
		"etag":    {testenv.With("ETag", `"other"`), failure("PreconditionFailed")}, // the request was right
		"swell":   {&testenv.Defect{Phase: testenv.GetObject, Do: testenv.Swell, After: 1 << 20}, func(text string, err error) bool { return len(text) > 1<<20 }},
	} {
		t.Run(name, func(t *testing.T) {
			s := testenv.StartS3(t, testenv.S3Config{AccessKey: "AKIA", SecretKey: secretKey, Defect: c.defect})
			s.Bucket("app").Put("a", content)
			m, err := minio.New(s.Host, &minio.Options{Creds: credentials.NewStaticV4("AKIA", secretKey, ""), Region: "us-east-1", MaxRetries: 1})
			if err != nil {
				t.Fatal(err)
			}
			set := func(*minio.GetObjectOptions) error { return nil }
			if name == "whole" || name == "etag" {
				set = func(o *minio.GetObjectOptions) error { return o.SetMatchETag(strings.Repeat("1", 32)) }
			}
			if text, err := readS3(t, m, "a", set); !c.want(text, err) {
				t.Errorf("%d bytes, %v", len(text), err)
			}
		})
	}
}

func TestS3TurnsPages(t *testing.T) {
	for _, do := range []testenv.Misdeed{testenv.Loop, testenv.Endless} {
		s := testenv.StartS3(t, testenv.S3Config{Defect: &testenv.Defect{Phase: testenv.ListObjects, Do: do}})
		s.Bucket("app")
		core := &minio.Core{Client: s3Client(t, s, nil, nil)}
		tokens, keys, token := map[string]bool{}, map[string]bool{}, ""
		for range 10 {
			page, err := core.ListObjectsV2("app", "", "", token, "", 0)
			if err != nil || !page.IsTruncated {
				t.Fatalf("%+v, %v", page, err)
			}
			token = page.NextContinuationToken
			tokens[token] = true
			for _, o := range page.Contents {
				keys[o.Key] = true
			}
		}
		if want := map[testenv.Misdeed]int{testenv.Loop: 1, testenv.Endless: 10}[do]; len(tokens) != want || len(keys) != 2*(want-want%2) {
			t.Errorf("%d tokens, %d keys", len(tokens), len(keys))
		}
	}
}
