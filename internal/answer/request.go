package answer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

const keptBuffer = 64 << 10 // bytes of a buffer that is used again

// A text is a body in memory, and what it is read by.
type text struct {
	bytes.Buffer
	counted counted
	limited io.LimitedReader
}

var texts = sync.Pool{New: func() any { return new(text) }}

// read reads a body, and a byte beyond limit when it is longer.
func (t *text) read(b *Budget, w http.ResponseWriter, body io.Reader, limit int64) error {
	t.limited = io.LimitedReader{R: body, N: max(limit, limit+1)} // which overflows for the largest
	t.counted = counted{budget: b, w: w, body: &t.limited}
	_, err := t.ReadFrom(&t.counted)
	return err
}

// done gives the memory back.
func (t *text) done() {
	t.counted.Close()
	if t.Cap() <= keptBuffer {
		t.Reset()
		t.counted, t.limited = counted{}, io.LimitedReader{}
		texts.Put(t)
	}
}

// Body calls use with the body of a request, of at most limit bytes, which is
// only good until use returns. When it is too long, does not arrive or does not
// fit into the budget, the error is a [*Refusal].
func (b *Budget) Body(w http.ResponseWriter, r *http.Request, limit int64, use func([]byte) error) error {
	long := func() error {
		return Refuse(http.StatusRequestEntityTooLarge, "the body is longer than %d bytes", limit)
	}
	if r.ContentLength > limit {
		return long()
	}
	t := texts.Get().(*text)
	defer t.done()
	switch err := t.read(b, w, r.Body, limit); {
	case int64(t.Len()) > limit:
		return long()
	case errors.Is(err, ErrFull):
		return err
	case err != nil:
		return Refuse(http.StatusBadRequest, "the body did not arrive whole")
	}
	return use(t.Bytes())
}

// Read reads the JSON object of a request into value, strictly: what is unknown
// is refused. No body is an empty object. The error is a [*Refusal].
func (b *Budget) Read(w http.ResponseWriter, r *http.Request, limit int64, value any) error {
	return b.Body(w, r, limit, func(text []byte) error {
		if len(bytes.TrimSpace(text)) == 0 {
			return nil
		}
		kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil || kind != "application/json" {
			return Refuse(http.StatusUnsupportedMediaType, "send JSON, with the header Content-Type: application/json")
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(value); err != nil {
			return Refuse(http.StatusBadRequest, "%s", Describe(err))
		}
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			return Refuse(http.StatusBadRequest, "the body is not a JSON object: something follows it")
		}
		return nil
	})
}

// values are what encoding/json calls the values of JSON, with an article.
var values = map[string]string{"string": "a string", "number": "a number", "bool": "a boolean", "array": "an array", "object": "an object"}

// expected is the value that a type is read from.
func expected(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return values["string"]
	case reflect.Bool:
		return values["bool"]
	case reflect.Slice, reflect.Array:
		return values["array"]
	case reflect.Map, reflect.Struct:
		return values["object"]
	}
	return values["number"]
}

// Describe returns what is wrong with the JSON of a request, in its own terms.
func Describe(err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return fmt.Sprintf("the body is not a JSON object but a JSON %s", wrong.Value)
		}
		value, _, _ := strings.Cut(wrong.Value, " ") // a number out of range follows
		return fmt.Sprintf("%s: %s; expected %s", wrong.Field, values[value], expected(wrong.Type))
	}
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("the body is not a JSON object: byte %d: %v", wrong.Offset, wrong)
	}
	return fmt.Sprintf("the body is not a JSON object: %v", err)
}

// Wants reports whether the caller asked for a media type by its name.
func Wants(r *http.Request, kind string) bool {
	for _, line := range r.Header["Accept"] {
		for item := range strings.SplitSeq(line, ",") {
			found, parameters, err := mime.ParseMediaType(item)
			if err != nil || found != kind {
				continue
			}
			if weight, err := strconv.ParseFloat(parameters["q"], 64); err != nil || weight > 0 {
				return true
			}
		}
	}
	return false
}

// Browses reports whether a person looks with a browser.
func Browses(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// A Foreign request is one that a page of another site made a browser send.
type Foreign string // the site

func (f Foreign) Error() string { return fmt.Sprintf("the request is of a page of %q", string(f)) }

// ForeignText is what callers are told of it, with 403.
const ForeignText = "Forbidden: requests of other sites are refused"

// Origins returns who may make browsers send requests that change something:
// pages of this server, also under the address that people know it by.
func Origins(baseURL string) *http.CrossOriginProtection {
	p := http.NewCrossOriginProtection()
	if scheme, rest, found := strings.Cut(baseURL, "://"); found {
		host, _, _ := strings.Cut(rest, "/")
		p.AddTrustedOrigin(scheme + "://" + host) // a base URL without a host trusts none
	}
	return p
}
