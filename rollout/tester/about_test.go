package tester_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// told is a payload as an analysis sends it.
func told(weight, more string) string {
	return fmt.Sprintf(`{"name":"app","namespace":"test","phase":"Waiting","checksum":"a","metadata":{"headgate.revision":"main@sha1:69d8","headgate.weight":%q,`+
		`"headgate.step":"2/5","headgate.threshold":"5","headgate.failures":"1"%s}}`, weight, more)
}

// TestOwnKeysAreNoneOfTheTest has requests that differ in keys of headgate alone
// be equal, and no test be asked for by them.
func TestOwnKeysAreNoneOfTheTest(t *testing.T) {
	s := newServer(t)
	url := "http://" + serve(t, s)
	for _, weight := range []string{"20", "40"} {
		if status, text := mustPost(t, url, told(weight, `,"cmd":"sleep 60"`)); status != http.StatusAccepted {
			t.Errorf("%d %s", status, text)
		}
	}
	mustPost(t, url, `{"name":"app","namespace":"test","phase":"Progressing","checksum":"a","metadata":{"cmd":"sleep 60"}}`)
	if runs := s.Runs.Runs(api.Filter{}); len(runs) != 1 || len(runs[0].Metadata) != 1 {
		t.Errorf("%+v", runs)
	}
	if status, text := mustPost(t, url, told("20", "")); status != http.StatusBadRequest || text != "metadata not found in payload" {
		t.Errorf("%d %s", status, text)
	}
}

// TestAboutWhatWaits has what a payload says for people in the API as it is now,
// harmless, and runs selected by their checksum.
func TestAboutWhatWaits(t *testing.T) {
	url := "http://" + serve(t, newServer(t))
	client := &api.Client{URL: url}
	key := api.Key{Kind: api.KindGate, Namespace: "test", Name: "app", Gate: "default"}
	var since string
	for _, weight := range []string{"20", "40"} {
		mustPost(t, url+"/gate/check", told(weight, ""))
		g, err := client.Gate(t.Context(), key)
		if err != nil || g.Waiting == nil {
			t.Fatalf("%+v %v", g, err)
		}
		if want := (api.About{Revision: "main@sha1:69d8", Weight: weight, Step: "2/5", Threshold: "5", Failures: "1"}); g.Waiting.About != want {
			t.Errorf("%+v, want %+v", g.Waiting.About, want)
		}
		if now := fmt.Sprint(g.Waiting.Since); since != "" && since != now {
			t.Error("another weight is another wait")
		} else {
			since = now
		}
	}
	long, _ := json.Marshal("https://ci:s3cret@git.example.org/a\x1b[2J" + strings.Repeat("x", 1000))
	mustPost(t, url+"/gate/check", `{"name":"app","namespace":"test","metadata":{"headgate.revision":`+string(long)+`}}`)
	g, err := client.Gate(t.Context(), key)
	if err != nil || len(g.Waiting.Revision) > 300 || strings.Contains(g.Waiting.Revision, "s3cret") || strings.Contains(g.Waiting.Revision, "\x1b") {
		t.Errorf("%+v %v", g.Waiting, err)
	}
	for _, checksum := range []string{"a", "b"} {
		mustPost(t, url, `{"name":"app","namespace":"test","checksum":"`+checksum+`","metadata":{"type":"bash","cmd":"true"}}`)
	}
	runs, err := client.Runs(t.Context(), api.Filter{Checksum: "b"})
	if err != nil || len(runs) != 1 || runs[0].Checksum != "b" {
		t.Errorf("%+v %v", runs, err)
	}
}

// TestLinkSaysWhatWaits has the page of a link look like the page, and show the
// revision, where it is, and its runs that the issuer of the link may see.
func TestLinkSaysWhatWaits(t *testing.T) {
	s := newServer(t)
	url := "http://" + serve(t, s)
	mustPost(t, url, told("20", `,"type":"bash","cmd":"echo broken; exit 3"`))
	mustPost(t, url, `{"name":"app","namespace":"test","checksum":"other","metadata":{"type":"kubectl","cmd":"get pods"}}`)
	mustPost(t, url+"/gate/check", told("20", ""))
	_, text := mustPost(t, url+"/api/v1/gates/gate/test/app/default/link", "{}", "Content-Type", "application/json")
	var link api.Link
	if err := json.Unmarshal([]byte(text), &link); err != nil {
		t.Fatal(text, err)
	}
	resp := get(t, link.Approve)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	shown := string(body)
	for _, part := range []string{"<dt>Revision</dt><dd><bdi class=\"code\">main@sha1:69d8<", "<dt>Checksum</dt><dd><bdi class=\"code\">a<", "<dd>20%</dd>", "<dd>2/5</dd>", "<dd>1 of 5</dd>",
		`<th scope="row">bash</th><td>failed</td>`, "exit status 3"} {
		if !strings.Contains(shown, part) {
			t.Errorf("%q is not in %s", part, shown)
		}
	}
	if strings.Contains(shown, "kubectl") {
		t.Error("it shows runs of another revision")
	}
	_, rest, _ := strings.Cut(shown, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	sheet, err := io.ReadAll(get(t, url+"/ui/style.css").Body)
	if err != nil || style != string(sheet) {
		t.Error("it does not look like the page")
	}
	sum := sha256.Sum256([]byte(style))
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
		t.Errorf("the style is forbidden by %s", csp)
	}
	mustPost(t, url+"/gate/check", `{"name":"old","namespace":"test","checksum":"5594979469"}`)
	_, text = mustPost(t, url+"/api/v1/gates/gate/test/old/default/link", "{}", "Content-Type", "application/json")
	if err := json.Unmarshal([]byte(text), &link); err != nil {
		t.Fatal(text, err)
	}
	body, _ = io.ReadAll(get(t, link.Approve).Body)
	if shown := string(body); !strings.Contains(shown, "<dt>Revision</dt><dd><bdi class=\"code\">5594979469<") || strings.Contains(shown, "Checksum") {
		t.Errorf("%s", shown)
	}
}
