package s3_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A redirect does not show what the request proved itself with, however the
// store puts it into the address, and stays short.
func TestRedirectThatRepeats(t *testing.T) {
	for name, to := range map[string]func(*http.Request) string{
		"signature":  func(r *http.Request) string { return "https://h.example/" + r.Header.Get("Authorization") },
		"token":      func(r *http.Request) string { return "https://h.example/" + r.Header.Get("X-Amz-Security-Token") },
		"host":       func(r *http.Request) string { return "https://" + r.Header.Get("X-Amz-Security-Token") + ".example/" },
		"long":       func(*http.Request) string { return "https://h.example/" + strings.Repeat("a", 100_000) },
		"long host":  func(*http.Request) string { return "https://" + strings.Repeat("a", 100_000) },
		"no address": func(r *http.Request) string { return "https://h.example/%zz" + r.Header.Get("Authorization") },
		"words":      func(*http.Request) string { return "https://h.example/\u202eevil" },
	} {
		t.Run(name, func(t *testing.T) {
			s := filled(t, people(), "a", "1")
			d := connect(t, ldap(s))
			s.Break(&testenv.Defect{Phase: testenv.ListObjects, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				w.Header().Set("Location", to(r))
				w.WriteHeader(http.StatusTemporaryRedirect)
			}})
			_, err := list(t.Context(), d, "")
			wantError(t, s, err, "list objects")
			if len(err.Error()) > 1024 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}
