package azure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/azure"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// resolve resolves a Bucket of the container content of s, logging in with login.
func resolve(t *testing.T, s *testenv.Azblob, login source.LoginFunc, edit func(*source.BucketSpec)) (*bucket.Origin, error) {
	t.Helper()
	b := &source.Bucket{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "Bucket", Metadata: source.Metadata{Name: "app", Namespace: "default"}},
		Spec: source.BucketSpec{Provider: "azure", BucketName: "content", Endpoint: s.URL, Insecure: true,
			Interval: source.Duration(time.Hour), Timeout: source.Duration(time.Minute)},
	}
	if edit != nil {
		edit(&b.Spec)
	}
	secrets := sourcetest.Secrets{"default/key": sourcetest.Secret("accountKey", key)}
	o := bucket.New(b, source.Env{Secrets: secrets, Login: login}, map[string]bucket.Provider{"azure": azure.Connect})
	_, _, err := o.Resolve(t.Context(), nil)
	clean(t, err, "tok-cAnArY")
	return o, err
}

// Who has no identity comes as nobody, who has one and is refused does not.
func TestIdentity(t *testing.T) {
	account := func(s *source.BucketSpec) { s.Endpoint = strings.Replace(s.Endpoint, "127.0.0.1", "store.example", 1) }
	for name, c := range map[string]struct {
		public bool
		err    error // of the login
		edit   func(*source.BucketSpec)
		logins int
		say    string // "" when it works
		reason string
	}{
		"good":                      {false, nil, nil, 1, "", ""},
		"nobody, public":            {true, fmt.Errorf("the machine: %w", source.ErrNoIdentity), nil, 1, "", ""},
		"nobody, private":           {false, source.ErrNoIdentity, nil, 1, "no credentials were sent", "AuthenticationFailed"},
		"no provider, public":       {true, errors.ErrUnsupported, nil, 1, "", ""},
		"refused, public":           {true, errors.New("not today"), nil, 1, "not today", "AuthenticationFailed"},
		"configured badly":          {true, fmt.Errorf("%w: set a variable", source.ErrProvider), nil, 1, "set a variable", "InvalidProviderConfiguration"},
		"service account, nobody":   {true, source.ErrNoIdentity, func(s *source.BucketSpec) { s.ServiceAccountName = "robot" }, 1, "no identity", "AuthenticationFailed"},
		"secret before identity":    {true, nil, func(s *source.BucketSpec) { s.SecretRef = ref("key") }, 0, "AuthenticationFailed", "AuthenticationFailed"},
		"signature before identity": {true, nil, func(s *source.BucketSpec) { s.Endpoint += "?" + sas }, 0, "AuthenticationFailed", "AuthenticationFailed"},
		"service account, in the clear": {true, nil, func(s *source.BucketSpec) { account(s); s.ServiceAccountName = "robot" }, 0,
			"spec.serviceAccountName: a token is shown to servers with TLS only", "InvalidProviderConfiguration"},
		"in the clear to another's host": {true, nil, account, 0, "store.example", "BucketOperationFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			config := testenv.AzblobConfig{Bearer: []string{"tok-cAnArY"}, Anonymous: c.public}
			s := start(t, config)
			logins := 0
			o, err := resolve(t, s, func(_ context.Context, r source.LoginRequest) (source.Credential, error) {
				logins++
				if want := "azblob://" + s.Host + "/content"; r.URL.String() != want || r.Provider != "azure" {
					t.Errorf("asked for %s of %s", r.URL, r.Provider)
				}
				return source.Credential{Token: "tok-cAnArY"}, c.err
			}, c.edit)
			step, _ := errors.AsType[*source.StepError](err)
			if c.say == "" && err != nil || c.say != "" && (err == nil || !strings.Contains(err.Error(), c.say) || step.Reason != c.reason) || logins != c.logins {
				t.Errorf("%v, %d logins", err, logins)
			}
			if name == "good" && !strings.Contains(strings.Join(o.Secrets(), " "), "tok-cAnArY") {
				t.Error("the token is not kept secret")
			}
		})
	}
}

func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(*source.BucketSpec)
		reason string
		say    string
	}{
		"no URL":            {func(s *source.BucketSpec) { s.Endpoint = "a b" }, "URLInvalid", "spec.endpoint"},
		"in the clear":      {func(s *source.BucketSpec) { s.Insecure = false }, "URLInvalid", "spec.insecure"},
		"credentials":       {func(s *source.BucketSpec) { s.Endpoint = "https://cAnArY@store.example" }, "URLInvalid", "spec.endpoint"},
		"bad query":         {func(s *source.BucketSpec) { s.Endpoint += "?sig=cAnArY%zz" }, "URLInvalid", "the query cannot be parsed"},
		"own parameters":    {func(s *source.BucketSpec) { s.Endpoint += "?comp=cAnArY" }, "URLInvalid", "the query has comp"},
		"no signature":      {func(s *source.BucketSpec) { s.Endpoint += "?cAnArY/x" }, "URLInvalid", "is no shared access signature"},
		"upper case":        {func(s *source.BucketSpec) { s.BucketName = "Content" }, "InvalidProviderConfiguration", "spec.bucketName is not the name of a container"},
		"short":             {func(s *source.BucketSpec) { s.BucketName = "ab" }, "InvalidProviderConfiguration", "spec.bucketName"},
		"long":              {func(s *source.BucketSpec) { s.BucketName = strings.Repeat("a", 64) }, "InvalidProviderConfiguration", "spec.bucketName"},
		"hyphens":           {func(s *source.BucketSpec) { s.BucketName = "a--b" }, "InvalidProviderConfiguration", "spec.bucketName"},
		"hyphen at the end": {func(s *source.BucketSpec) { s.BucketName = "abc-" }, "InvalidProviderConfiguration", "spec.bucketName"},
		"other special":     {func(s *source.BucketSpec) { s.BucketName = "$other" }, "InvalidProviderConfiguration", "spec.bucketName"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, testenv.AzblobConfig{})
			_, err := resolve(t, s, nil, c.edit)
			step, _ := errors.AsType[*source.StepError](err)
			if !errors.Is(err, source.ErrInvalid) || step.Reason != c.reason || !strings.Contains(err.Error(), c.say) || s.Count() > 0 {
				t.Errorf("%v", err)
			}
		})
	}
	for _, name := range []string{"$root", "$web", "$logs", "abc", "a-b-c", "0ab", strings.Repeat("a", 63)} {
		s := testenv.StartAzblob(t, testenv.AzblobConfig{Key: key})
		s.Container(name).Put("a", "a")
		if _, err := resolve(t, s, nil, func(spec *source.BucketSpec) { spec.BucketName, spec.SecretRef = name, ref("key") }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The account is the first label of the host, or the path.
func TestAccounts(t *testing.T) {
	ca := testenv.NewCA(t)
	for endpoint, account := range map[string]string{
		"https://acme.blob.core.windows.net":             "acme",
		"https://acme.blob.core.windows.net/":            "acme",
		"https://acme.blob.core.usgovcloudapi.net":       "acme",
		"https://store.example":                          "store",
		"http://azurite.tools.svc:10000/devstoreaccount": "devstoreaccount",
		"http://127.0.0.1:10000/devstoreaccount/":        "devstoreaccount",
		"http://localhost:10000/devstoreaccount":         "devstoreaccount",
	} {
		s := testenv.StartAzblob(t, testenv.AzblobConfig{Key: key, Account: account})
		s.Container("content").Put("a", "a")
		tls := testenv.StartAzblob(t, testenv.AzblobConfig{Key: key, Account: account, CA: ca, Names: []string{"acme.blob.core.windows.net", "acme.blob.core.usgovcloudapi.net", "store.example"}})
		tls.Container("content").Put("a", "a")
		p := testenv.ServeProxy(t, testenv.Proxy{Hosts: map[string]string{"acme.blob.core.windows.net:443": tls.Host, "acme.blob.core.usgovcloudapi.net:443": tls.Host,
			"store.example:443": tls.Host, "azurite.tools.svc:10000": s.Host, "127.0.0.1:10000": s.Host, "localhost:10000": s.Host}})
		a := trusting(access(s, "accountKey", key), ca)
		a.Spec.Endpoint = endpoint
		a.Way.Proxy = through(t, p.URL)
		got, err := read(t, connect(t, a))
		if err != nil || got["a"] != "a" {
			t.Errorf("%s: %v, %v", endpoint, got, err)
		}
	}
}

// A token that the account refuses is forgotten, and another one is tried.
func TestRefusedToken(t *testing.T) {
	s := start(t, testenv.AzblobConfig{Bearer: []string{"tok-cAnArY-2"}})
	issued, forgotten := 0, 0
	_, err := resolve(t, s, func(context.Context, source.LoginRequest) (source.Credential, error) {
		issued++
		return source.Credential{Token: fmt.Sprintf("tok-cAnArY-%d", issued), Refused: func() { forgotten++ }}, nil
	}, nil)
	if err != nil || issued != 2 || forgotten != 1 {
		t.Errorf("%v, %d tokens, %d forgotten", err, issued, forgotten)
	}
	_, err = resolve(t, s, func(context.Context, source.LoginRequest) (source.Credential, error) {
		if issued++; issued > 3 {
			return source.Credential{}, errors.New("not again")
		}
		return source.Credential{Token: "tok-cAnArY-old"}, nil
	}, nil)
	if err == nil || !strings.Contains(err.Error(), "not again") {
		t.Error(err)
	}
	for _, token := range []string{"", "tok-cAnArY\r\nX-Other: a"} {
		_, err = resolve(t, s, func(context.Context, source.LoginRequest) (source.Credential, error) {
			return source.Credential{Token: token}, nil
		}, nil)
		if step, ok := errors.AsType[*source.StepError](err); !ok || step.Reason != "AuthenticationFailed" || !strings.Contains(err.Error(), "no token that can be sent") {
			t.Errorf("%q: %v", token, err)
		}
	}
}
