package remote_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
)

// intercept returns a handler that serves requests with a method and an ending of the path
// by answer, and all others by next.
func intercept(next http.Handler, method, ending string, answer http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == method && strings.HasSuffix(r.URL.Path, ending) {
			answer(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func respond(status int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// S-3, S-43: a start answer without the number of a test is an error.
func TestNGrinderStartAnswers(t *testing.T) {
	const prefix = "ngrinder: start a clone of test 27: "
	const at = "POST http://load.example:8080/ngrinder/perftest/api/27/clone_and_start: "
	noNumber := prefix + "the answer has no number of a test: one may have been started all the same"
	noObject := prefix + "the answer is no JSON object: is that the base URL of the server, and who may use it?"
	json := "application/json"
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"no id", respond(200, json, `{}`), noNumber},
		{"null", respond(200, json, `{"id": null}`), noNumber},
		{"text", respond(200, json, `{"id": "5"}`), noNumber},
		{"path", respond(200, json, `{"id": "../../admin"}`), noNumber},
		{"negative", respond(200, json, `{"id": -5}`), noNumber},
		{"zero", respond(200, json, `{"id": 0}`), noNumber},
		{"fraction", respond(200, json, `{"id": 5.5}`), noNumber},
		{"too large", respond(200, json, `{"id": 1e300}`), noNumber},
		{"overflow", respond(200, json, `{"id": 9223372036854775808}`), noNumber},
		{"list", respond(200, json, `[{"id": 5}]`), noObject},
		{"nothing", respond(200, json, ``), noObject},
		{"page", respond(200, "text/html; charset=utf-8", `{"id": 5}`), noObject},
		{"page of another type", respond(200, json, ` <!DOCTYPE html>`), noObject},
		{"cut off", respond(200, json, `{"id": 5`), prefix + "the answer is no JSON of the form that was expected"},
		{"deep", respond(200, json, `{"id":`+strings.Repeat("[", 20000)), prefix + "the answer is no JSON of the form that was expected"},
		{"no success", respond(200, json, `{"success": false, "id": 5, "cause": "no \u001b[31magent\nis `+password+`"}`), prefix + "the server says that it did not succeed: no agent; is ***"},
		{"no success, no cause", respond(200, json, `{"success": false, "cause": {}}`), prefix + `the server says that it did not succeed: {"success": false, "cause": {}}`},
		{"huge", respond(200, json, `{"x": "`+strings.Repeat("x", 1<<20)+`"}`), prefix + at + "the answer is longer than 1 MiB"},
		{"500", respond(500, json, `{"success": false, "cause": "out of agents"}`), prefix + at + "500 Internal Server Error: out of agents"},
		{"500 cut in a secret", respond(500, "text/plain", "http://a/?q="+strings.Repeat("x", 1200-12-1-8)+" "+password), prefix + at + "500 Internal Server Error: http://a/?q=*** ***"},
		{"500 page", respond(500, "text/html", `<html>`+password), prefix + at + "500 Internal Server Error"},
		{"500 text", respond(500, "text/plain", strings.Repeat("ä", 4000)), prefix + at + "500 Internal Server Error: " + strings.Repeat("ä", 150) + "…"},
		{"401", respond(401, json, ``), prefix + at + "401 Unauthorized"},
		{"400 twice", func(w http.ResponseWriter, r *http.Request) { respond(400, json, `{"message": "`+r.Method+`"}`)(w, r) },
			prefix + at + "400 Bad Request: POST; and then GET http://load.example:8080/ngrinder/perftest/api/27/clone_and_start: 400 Bad Request: GET"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, s := testServers(t)
				n.serve(t, publicIP+":8080", c.answer)
				out, err := runLoad(t, t.Context(), s, nGrinderMetadata)
				if text(err) != c.want || out != "" {
					t.Errorf("error %q\nwant  %q\noutput %q", text(err), c.want, out)
				}
			})
		})
	}
}

// S-5, S-39: if answers never report the state, the task gives up after a minute and
// stops the test.
func TestNGrinderStatusAnswers(t *testing.T) {
	noStatus := "the answer has no status of the test"
	for _, c := range []struct{ body, want string }{
		{`{}`, noStatus},
		{`{"status": []}`, noStatus},
		{`{"status": ["FINISHED"]}`, noStatus},
		{`{"status": [null, {"status_id": "FINISHED"}]}`, noStatus},
		{`{"status": [{"status_id": 5}]}`, noStatus},
		{`{"status": {"name": ["FINISHED"]}}`, noStatus},
		{`{"status": 5}`, noStatus},
		{`{"status": "\u001b[0m"}`, noStatus},
		{`[]`, "the answer is no JSON object: is that the base URL of the server, and who may use it?"},
		{`{"success": false, "cause": "gone"}`, "the server says that it did not succeed: gone"},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, s := testServers(t)
			grinder := newGrinder("TESTING")
			n.serve(t, publicIP+":8080", intercept(grinder, "GET", "/status", respond(200, "application/json", c.body)))
			began := time.Now()
			_, err := runLoad(t, t.Context(), s, nGrinderMetadata)
			if got, want := text(err), "ngrinder: test 1001: given up after 61 failures in a row: "+c.want; got != want || !slices.Equal(grinder.Stopped(), []int64{1001}) {
				t.Errorf("%s: error %q, want %q, stopped %v", c.body, got, want, grinder.Stopped())
			}
			testenv.Equal(t, time.Since(began), 61*time.Second, "%s: given up after", c.body)
		})
	}
	for _, body := range []string{`{"status": "FINISHED"}`, `{"status": [{"status_id": "FINISHED"}, 5]}`, `{"status": {"name": "FINISHED", "category": {}}, "message": 5}`} {
		synctest.Test(t, func(t *testing.T) {
			n, s := testServers(t)
			n.serve(t, publicIP+":8080", intercept(newGrinder("TESTING"), "GET", "/status", respond(200, "text/plain", body)))
			if _, err := runLoad(t, t.Context(), s, nGrinderMetadata); err != nil {
				t.Errorf("%s: %v", body, err)
			}
		})
	}
}

// Refusals that a retry cannot change end a run at once.
func TestFinalRefusals(t *testing.T) {
	for _, status := range []int{401, 403, 404} {
		synctest.Test(t, func(t *testing.T) {
			n, s := testServers(t)
			grinder, concord := newGrinder("TESTING"), newConcord("RUNNING")
			n.serve(t, publicIP+":8080", intercept(grinder, "GET", "/status", respond(status, "text/plain", "no")))
			n.serve(t, publicIP+":80", intercept(concord, "GET", "", respond(status, "text/plain", "no")))
			began := time.Now()
			_, loadErr := runLoad(t, t.Context(), s, nGrinderMetadata)
			_, processErr := runProcess(t, t.Context(), s, concordMetadata)
			suffix := fmt.Sprintf(": %d %s: no", status, http.StatusText(status))
			if !strings.HasSuffix(text(loadErr), suffix) || !strings.HasSuffix(text(processErr), suffix) || time.Since(began) != 6*time.Second {
				t.Errorf("%v; %v; after %s", loadErr, processErr, time.Since(began))
			}
			if len(grinder.Stopped()) != 1 || len(concord.Cancelled()) != 1 {
				t.Errorf("stopped %v, cancelled %v", grinder.Stopped(), concord.Cancelled())
			}
		})
	}
}

// S-43: text that is not an ID of a process never becomes part of a path.
func TestConcordStartAnswers(t *testing.T) {
	const prefix = "concord: start a process: "
	noID := prefix + "the answer has no instanceId of a process: one may have been started all the same"
	json := "application/json"
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"no id", respond(200, json, `{"ok": true}`), noID},
		{"empty", respond(200, json, `{"instanceId": "", "ok": true}`), noID},
		{"number", respond(200, json, `{"instanceId": 5, "ok": true}`), noID},
		{"path", respond(200, json, `{"instanceId": "../../secret", "ok": true}`), noID},
		{"dots", respond(200, json, `{"instanceId": "..", "ok": true}`), noID},
		{"query", respond(200, json, `{"instanceId": "a?b"}`), noID},
		{"escape", respond(200, json, `{"instanceId": "a%2fb"}`), noID},
		{"long", respond(200, json, `{"instanceId": "`+strings.Repeat("a", 129)+`"}`), noID},
		{"not ok", respond(200, json, `{"instanceId": "a", "ok": false, "message": "no `+apiKey+`"}`), prefix + "the server says that it did not succeed: no ***"},
		{"page", respond(200, "text/html", `<html>`), prefix + "the answer is no JSON object: is that the base URL of the server, and who may use it?"},
		{"400", respond(400, json, `{"instanceId": null, "message": "Project not found: checkout", "details": "x"}`), prefix + "POST http://concord.example/base/api/v1/process: 400 Bad Request: Project not found: checkout"},
		{"validation", respond(400, json, `[{"id": "x", "message": "must not be null"}]`), prefix + `POST http://concord.example/base/api/v1/process: 400 Bad Request: [{"id": "x", "message": "must not be null"}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, s := testServers(t)
				requests := 0
				n.serve(t, publicIP+":80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { requests++; c.answer(w, r) }))
				_, err := runProcess(t, t.Context(), s, concordMetadata)
				if text(err) != c.want || requests != 1 {
					t.Errorf("error %q\nwant  %q\nafter %d requests", text(err), c.want, requests)
				}
			})
		})
	}
}

// The limits hold for a server that stalls or closes the connection.
func TestStalls(t *testing.T) {
	stall := func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // only then the server notices that a client disconnects
		<-r.Context().Done()
	}
	synctest.Test(t, func(t *testing.T) {
		n, s := testServers(t)
		n.serve(t, publicIP+":80", http.HandlerFunc(stall))
		began := time.Now()
		_, err := runProcess(t, t.Context(), s, concordMetadata)
		if text(err) != "concord: start a process: POST http://concord.example/base/api/v1/process: no answer within 1m0s" || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) { // in the middle of a body
		n, s := testServers(t)
		n.serve(t, publicIP+":80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "{")
			w.(http.Flusher).Flush()
			stall(w, r)
		}))
		_, err := runProcess(t, t.Context(), s, concordMetadata)
		if !strings.HasSuffix(text(err), ": no answer within 1m0s") {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // in answers about the state, and to the request to cancel
		n, s := testServers(t)
		concord := newConcord("RUNNING")
		n.serve(t, publicIP+":80", intercept(intercept(concord, "GET", "", stall), "DELETE", "", stall))
		began := time.Now()
		out, err := runProcess(t, t.Context(), s, concordMetadata)
		if text(err) != "concord process timed out, after 30 seconds" || time.Since(began) != 50*time.Second || !strings.HasSuffix(out, ": no answer within 10s\n") {
			t.Errorf("%v after %s, output %q", err, time.Since(began), out)
		}
	})
	synctest.Test(t, func(t *testing.T) { // an endless header, and then a closed connection
		n, s := testServers(t)
		n.serve(t, publicIP+":80", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := range 100 {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1<<10))
			}
		}))
		if _, err := runProcess(t, t.Context(), s, concordMetadata); !strings.Contains(text(err), "server response headers exceeded") {
			t.Error(err)
		}
		n.serve(t, publicIP+":80", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		if _, err := runProcess(t, t.Context(), s, concordMetadata); !strings.HasSuffix(text(err), ": EOF") {
			t.Error(err)
		}
	})
}

// Retry-After is obeyed, but only up to a minute.
func TestRetryAfter(t *testing.T) {
	for after, want := range map[string]time.Duration{"20": 20 * time.Second, "86400": time.Minute, "0": time.Second} {
		synctest.Test(t, func(t *testing.T) {
			n, s := testServers(t)
			requests := 0
			n.serve(t, publicIP+":8080", intercept(newGrinder("x"), "GET", "/status", func(w http.ResponseWriter, r *http.Request) {
				if requests++; requests == 1 {
					w.Header().Set("Retry-After", after)
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				respond(200, "", `{"status": "FINISHED"}`)(w, r)
			}))
			began := time.Now()
			if _, err := runLoad(t, t.Context(), s, nGrinderMetadata); err != nil || time.Since(began) != time.Second+want {
				t.Errorf("Retry-After %s: %v after %s", after, err, time.Since(began))
			}
		})
	}
}

// A task gives up only after failures in a row, and at least three.
func TestPollFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := testServers(t)
		requests := 0
		n.serve(t, publicIP+":8080", intercept(newGrinder("x"), "GET", "/status", func(w http.ResponseWriter, r *http.Request) {
			requests++
			switch {
			case requests == 400:
				respond(200, "", `{"status": "FINISHED"}`)(w, r)
			case requests%40 == 0:
				respond(200, "", `{"status": "TESTING"}`)(w, r)
			default:
				w.WriteHeader(http.StatusBadGateway)
			}
		}))
		out, err := runLoad(t, t.Context(), s, nGrinderMetadata)
		if err != nil || strings.Count(out, "502") != 10 || strings.Count(out, "TESTING") != 1 {
			t.Errorf("%v, output\n%s", err, out)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n, s := testServers(t)
		n.serve(t, publicIP+":8080", intercept(newGrinder("x"), "GET", "/status", respond(500, "", "")))
		began := time.Now()
		_, err := runLoad(t, t.Context(), s, with(nGrinderMetadata, "pollInterval", "10m"))
		if !strings.Contains(text(err), "given up after 3 failures in a row") || time.Since(began) != 30*time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
