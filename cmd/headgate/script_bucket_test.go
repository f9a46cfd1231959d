package main

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate-io/headgate/internal/testenv"
)

// storesKey is the key of a script's object stores by variable.
type storesKey struct{}

// bucketServers starts the object stores of a script. $S3 is public. $S3KEYS requires the keys
// "AKIDREADER" and "s3cret-canary". $S3TLS has a certificate of ca.crt and requires a client
// certificate. $S3STS issues temporary keys for LDAP user "ci" and password "s3cret-canary", or for
// the token "t0ken-canary". All have the bucket "assets". $S3LAB is like a store in a lab: it has a
// certificate of lab/ca.crt, the same keys, and its own region. $S3BUSY answers 503, and $S3ECHO
// echoes each request. $GCS requires a token for the key in secrets/gcs, and $AZURE requires the
// signature in $SAS; both have "assets" too.
func bucketServers(t *testing.T, env *testscript.Env, used func(...string) bool) error {
	if !used("S3", "GCS", "AZURE") {
		return nil
	}
	ca, lab := testenv.NewCA(t), testenv.NewCA(t)
	stores, desks := map[string]*testenv.Store{}, env.Values[recordingServersKey{}].(map[string]recordingServer)
	for name, config := range map[string]testenv.StoreConfig{
		"S3":     {},
		"S3KEYS": {AccessKey: "AKIDREADER", SecretKey: "s3cret-canary"},
		"S3TLS":  {CA: ca, Mutual: true},
		"S3LAB":  {CA: lab, AccessKey: "AKIDREADER", SecretKey: "s3cret-canary", Region: "lab-1"},
		"S3STS":  {LDAPUsername: "ci", LDAPPassword: "s3cret-canary", WebIdentityToken: "t0ken-canary"},
		"S3BUSY": {Defect: testenv.S3Failure(http.StatusServiceUnavailable, "SlowDown", "reduce your request rate")},
	} {
		if !used(name) {
			continue
		}
		s := testenv.StartS3(t, config)
		stores[name], desks[name] = s, s
		env.Setenv(name, s.Host)
		s.Bucket("assets").Replace(assets)
	}
	env.Values[storesKey{}] = stores
	env.Setenv("S3ECHO", strings.TrimPrefix(startEchoingS3(t), "http://"))
	gcs := testenv.StartGCS(t, testenv.StoreConfig{ServiceAccount: "ci@project.iam.gserviceaccount.com"})
	gcs.Bucket("assets").Replace(assets)
	env.Setenv("GCS", gcs.Host)
	const sas = "sv=2024-11-04&sr=c&sp=rl&sig=5as-canary"
	azure := testenv.StartAzblob(t, testenv.StoreConfig{SAS: sas})
	azure.Bucket("assets").Replace(assets)
	env.Setenv("AZURE", azure.URL)
	env.Setenv("SAS", sas)
	client, key := ca.Client("ci")
	for name, text := range map[string][]byte{
		"mutual/ca.crt": ca.PEM(), "mutual/tls.crt": client, "mutual/tls.key": key, "lab/ca.crt": lab.PEM(), "gcs/serviceaccount": gcs.Key(),
	} {
		file := filepath.Join(env.WorkDir, "secrets", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// assets is the content of all buckets.
var assets = map[string]string{
	".sourceignore": "*.log\n",
	"app/a.yaml":    "a: 1\n",
	"app/b.yaml":    "b: 1\n",
	"app/c.log":     "not this\n",
	"app/old/":      "",
	"other/d.png":   "png",
}

// startEchoingS3 returns the URL of a store that echoes each request.
func startEchoingS3(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusBadRequest)
		query, _ := url.QueryUnescape(r.URL.RawQuery)
		fmt.Fprintf(w, "<Error><Code>InvalidRequest</Code><Message>%s</Message></Error>", html.EscapeString(fmt.Sprint(query, r.Form, r.Header)))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// changeBucket changes the bucket "assets" of a store: bucket VARIABLE put KEY TEXT, or bucket VARIABLE remove KEY…
func changeBucket(ts *testscript.TestScript, _ bool, args []string) {
	b := ts.Value(storesKey{}).(map[string]*testenv.Store)[args[0]].Bucket("assets")
	if args[1] == "remove" {
		b.Remove(args[2:]...)
		return
	}
	b.Put(args[2], args[3]+"\n")
}

// checkRequests compares the requests to a server since the last call: asked VARIABLE [list=N] [get=N]
// [role=N] [index=N] [chart=N] [STATUS=N]. The first five count requests of a phase, and must add
// up to the number of all requests. STATUS=N counts responses.
func checkRequests(ts *testscript.TestScript, _ bool, args []string) {
	s := ts.Value(recordingServersKey{}).(map[string]recordingServer)[args[0]]
	phases := map[string]testenv.Phase{
		"list": testenv.ListObjects, "get": testenv.GetObject, "role": testenv.AssumeRole,
		"index": testenv.GetIndex, "chart": testenv.GetChart,
	}
	sum := 0
	for _, arg := range args[1:] {
		name, number, _ := strings.Cut(arg, "=")
		want, err := strconv.Atoi(number)
		ts.Check(err)
		phase, ok := phases[name]
		if !ok {
			ts.Check(checkResponses(s, name, want))
			continue
		}
		if got := s.Count(phase); got != want {
			ts.Fatalf("%d requests to %s, want %d", got, phase, want)
		}
		sum += want
	}
	if got := s.Count(); got != sum {
		ts.Fatalf("%d requests, want %d", got, sum)
	}
	s.Reset()
}

// checkResponses checks that the number of responses with a status is want.
func checkResponses(s recordingServer, status string, want int) error {
	got := 0
	for _, r := range s.Requests() {
		if strconv.Itoa(r.Status) == status {
			got++
		}
	}
	if got != want {
		return fmt.Errorf("%d answers %s, want %d", got, status, want)
	}
	return nil
}
