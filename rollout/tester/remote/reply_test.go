package remote

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzReplies(f *testing.F) {
	for _, seed := range []string{
		`{"success": true, "id": 381}`, `{"id": "381"}`, `{"id": 1e3}`, `{"success": false, "cause": "no\u001b agents k3y"}`,
		`{"status": [{"status_id": "FINISHED"}]}`, `{"status": {"name": "TESTING", "category": "TESTING"}, "message": "k3y"}`, `{"status": "FINISHED"}`,
		`{"instanceId": "6f9619ff-8b86-d011-b42d-00c04fc96000", "ok": true}`, `{"instanceId": "../x", "ok": false, "message": "k3y"}`, `{"status":"FAILED"}`,
		`[]`, `<html>`, `{"status":[[[[`, "{\"status\":\"\xff\"}", `{"message": 5, "error": "k3y"}`,
	} {
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, html bool) {
		a := answer{body: body, html: html}
		secrets := []string{"k3y-that-is-secret"}
		check := func(what string) {
			if len(what) > maxWords+len("…") || !utf8.ValidString(what) || strings.ContainsFunc(what, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.Contains(what, secrets[0]) {
				t.Errorf("%q is shown", what)
			}
		}
		if id, err := loadID(a, secrets); err == nil && id <= 0 {
			t.Errorf("test %d", id)
		}
		if state, message, err := loadState(a, secrets); err == nil {
			check(state)
			check(message)
		}
		if id, err := processID(a, secrets); err == nil && (strings.ContainsAny(id, "/?#%\\ ") || strings.Trim(id, ".") == "") {
			t.Errorf("process %q", id)
		}
		if state, _, err := processState(a, secrets); err == nil {
			check(state)
		}
		check(explain(a, secrets))
	})
}
