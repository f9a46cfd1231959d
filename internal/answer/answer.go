// Package answer is what the HTTP servers of this module answer with: texts,
// JSON, problems and streams; and how they read what they are asked.
//
// The last byte of an answer leaves when its handler has returned: what the
// handler does next, callers find done. An answer that nobody takes for 30
// seconds is given up.
package answer

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

const (
	// Time is how long an answer may wait to be taken.
	Time = 30 * time.Second

	short = 1 << 10 // bytes that net/http keeps until the handler has returned
)

// Values of headers of all texts, which nobody changes.
var (
	nosniff   = []string{"nosniff"}
	plainText = []string{"text/plain; charset=utf-8"}
	noStore   = []string{"no-store"}
)

// send writes the body of an answer.
func send(w http.ResponseWriter, body []byte) error {
	if n := len(body) - 1; n >= short {
		if _, err := w.Write(body[:n]); err != nil {
			return err
		}
		body = body[n:]
	}
	_, err := w.Write(body)
	return err
}

// Text answers with a text, "" for no body, which nobody may keep.
func Text(w http.ResponseWriter, status int, body string) error {
	header := w.Header()
	header["X-Content-Type-Options"] = nosniff
	header["Cache-Control"] = noStore
	if body != "" {
		header["Content-Type"] = plainText
	}
	if len(body) >= short { // else net/http does
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	return send(w, []byte(body))
}

// JSON answers with a value as JSON, which nobody may keep.
func JSON(w http.ResponseWriter, status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return sendJSON(w, status, body)
}

func sendJSON(w http.ResponseWriter, status int, body []byte) error {
	header := w.Header()
	header["X-Content-Type-Options"] = nosniff
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	body = append(body, '\n')
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	return send(w, body)
}
