package gcp_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/gcs"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/gcp"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

const (
	store       = "storage.googleapis.com"
	bucketScope = "https://www.googleapis.com/auth/devstorage.read_only"
)

// enter logs in to a bucket.
func (w *world) enter(p *gcp.Provider, host string, own bool) (source.Credential, error) {
	w.T.Helper()
	r := w.Request("gcp", "gs://"+host+"/app")
	r.OwnTrust = own
	c, err := p.Login(w.T.Context(), r)
	if err != nil && strings.Contains(err.Error(), "canary") {
		w.T.Errorf("a secret shows: %v", err)
	}
	return c, err
}

// A token for buckets is of the narrowest scope that each way can ask for.
func TestBucket(t *testing.T) {
	const (
		byKey   = "token urn:ietf:params:oauth:grant-type:jwt-bearer "
		byUser  = "token refresh_token gcloud"
		trade   = "sts.googleapis.com //iam.googleapis.com/" + provider + " urn:ietf:params:oauth:token-type:jwt " + bucketScope
		domain  = "machine /computeMetadata/v1/universe/universe-domain"
		machine = "machine /computeMetadata/v1/instance/service-accounts/default/token?scopes=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fdevstorage.read_only"
	)
	for name, c := range map[string]struct {
		vars  []string
		asked []string // the last
	}{
		"key of a service account": {file(serviceAccount().write(t)), []string{byKey}},
		"user":                     {file(user().write(t)), []string{byUser}},
		"identity in a file":       {file(federated(t).write(t)), []string{trade}},
		"job":                      {job(), []string{trade}},
		"developer":                {home(t), []string{byUser}},
		"machine":                  {nil, []string{domain, machine}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.vars...)
			w.scope = bucketScope
			issued, err := w.enter(w.provider(), store, false)
			if err != nil || issued.Token != token(1) || issued.Username != "" || issued.Password != "" || issued.Refused == nil || time.Until(issued.Expires) < 59*time.Minute {
				t.Fatalf("%+v, %v", issued, err)
			}
			if !slices.Equal(w.Asked[len(w.Asked)-len(c.asked):], c.asked) {
				t.Errorf("asked %q, want %q", w.Asked, c.asked)
			}
		})
	}
}

// google answers as the metadata server refuses.
func google(status int) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Metadata-Flavor", "Google")
		rw.WriteHeader(status)
	}
}

func TestBucketHostile(t *testing.T) {
	gone := func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/computeMetadata/v1/universe/universe-domain" {
			rw.Write([]byte("googleapis.com"))
			return
		}
		rw.WriteHeader(http.StatusNotFound)
	}
	for name, c := range map[string]struct {
		vars   []string
		answer http.HandlerFunc
		host   string
		own    bool
		nobody bool
		say    string
	}{
		"nobody":                   {[]string{"GCE_METADATA_HOST", "127.0.0.1:1"}, nil, store, false, true, "metadata server: GET http://127.0.0.1:1/"},
		"machine has no account":   {nil, gone, store, false, true, "status 404"},
		"machine fails":            {nil, google(500), store, false, false, "status 500"},
		"machine refuses":          {nil, google(403), store, false, false, "status 403"},
		"machine of another maker": {nil, logintest.Answers(403, ``), store, false, true, "status 403"},
		"machine of another cloud": {nil, logintest.Answers(200, `s3nsapis.fr`), store, false, false, "the identity is one of s3nsapis.fr, and the bucket is of googleapis.com"},
		"key is refused":           {file(serviceAccount().with("client_email", "other@example.com").write(t)), nil, store, false, false, "status 400"},
		"CA of the object":         {nil, nil, store, true, false, "spec.certSecretRef: ca.crt"},
		"another store":            {nil, nil, "store.example", false, false, "spec.endpoint: the identity of this program is shown to storage.googleapis.com"},
		"another port":             {nil, nil, store + ":8443", false, false, "spec.endpoint: "},
		"a store that looks alike": {nil, nil, store + ".example", false, false, "spec.endpoint: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.vars...)
			w.scope, w.Answer = bucketScope, c.answer
			_, err := w.enter(w.provider(), c.host, c.own)
			if err == nil || !strings.Contains(err.Error(), c.say) || errors.Is(err, source.ErrNoIdentity) != c.nobody {
				t.Errorf("%v", err)
			}
			if w.Issued > 0 {
				t.Errorf("asked %q", w.Asked)
			}
		})
	}
}

// A Bucket of Google Cloud is read with the identity of the program.
func TestReadBucket(t *testing.T) {
	w := newWorld(t, file(serviceAccount().write(t))...)
	w.scope = bucketScope
	w.store.Bucket("app").Put("a", "one")
	b := &source.Bucket{
		Header: source.Header{Kind: "Bucket", Metadata: source.Metadata{Name: "app", Namespace: "default"}},
		Spec: source.BucketSpec{Provider: "gcp", BucketName: "app", Endpoint: store, ProxySecretRef: &source.LocalReference{Name: "proxy"},
			Interval: source.Duration(time.Hour), Timeout: source.Duration(time.Minute)},
	}
	origin := bucket.New(b, source.Env{Secrets: w.Secrets, Login: w.provider().Login}, map[string]bucket.Provider{"gcp": gcs.Connect})
	if rev, _, err := origin.Resolve(t.Context(), nil); err != nil || !strings.HasPrefix(rev.ID, "sha256:") || !slices.Contains(origin.Secrets(), token(1)) {
		t.Errorf("%+v, %v", rev, err)
	}
}
