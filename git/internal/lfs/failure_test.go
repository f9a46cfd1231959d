package lfs_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
)

// What servers get wrong, and what they say.
func TestDefects(t *testing.T) {
	for name, row := range map[string]struct {
		defect *testenv.Defect
		edit   func(*testenv.LFSAnswer)
		extra  string
		is     error
		say    string
	}{
		"batch unauthorised":    {defect: answer(testenv.LFSBatch, 401, `{"message":"Credentials needed"}`), is: lfs.ErrAuth, say: "Credentials needed"},
		"batch forbidden":       {defect: answer(testenv.LFSBatch, 403, ``), is: fs.ErrPermission, say: "status 403"},
		"batch not found":       {defect: answer(testenv.LFSBatch, 404, `Not here`, "Content-Type", "text/plain"), is: fs.ErrNotExist, say: "Not here"},
		"batch with page":       {defect: answer(testenv.LFSBatch, 404, `<html>`, "Content-Type", "text/html"), is: lfs.ErrNotFound, say: "status 404: "},
		"batch refused":         {defect: answer(testenv.LFSBatch, 422, `{"message":"bad\u001b[31m objects"}`), say: "status 422 (bad objects)"},
		"quota":                 {defect: answer(testenv.LFSBatch, 509, ``), say: "bandwidth quota"},
		"malformed":             {defect: answer(testenv.LFSBatch, 200, `{"objects":[`), is: lfs.ErrProtocol, say: "not what it should be"},
		"wrong types":           {defect: answer(testenv.LFSBatch, 200, `{"objects":{"oid":1}}`), is: lfs.ErrProtocol, say: "not what it should be"},
		"web page":              {defect: answer(testenv.LFSBatch, 200, ` <!doctype html>`), is: lfs.ErrProtocol, say: "web page"},
		"deep":                  {defect: answer(testenv.LFSBatch, 200, strings.Repeat("[", 1<<20)), is: lfs.ErrProtocol},
		"huge":                  {defect: answer(testenv.LFSBatch, 200, `{"objects":[]`+strings.Repeat(" ", 10<<20)+`}`), is: lfs.ErrProtocol, say: "more than 10485760 bytes"},
		"no objects":            {defect: answer(testenv.LFSBatch, 200, `{}`), is: lfs.ErrProtocol, say: "does not mention it"},
		"other objects":         {edit: func(o *testenv.LFSAnswer) { o.OID = some }, is: lfs.ErrProtocol, say: "does not mention it"},
		"other transfer":        {defect: answer(testenv.LFSBatch, 200, `{"transfer":"tus"}`), is: lfs.ErrProtocol, say: `"tus"`},
		"other hash":            {defect: answer(testenv.LFSBatch, 200, `{"hash_algo":"sha512"}`), is: lfs.ErrProtocol, say: `"sha512"`},
		"no link":               {edit: func(o *testenv.LFSAnswer) { o.Actions = nil }, is: lfs.ErrProtocol, say: "no way to download"},
		"object absent":         {edit: fault(404, "Object does not exist"), is: fs.ErrNotExist, say: "of a.bin: not found: status 404 (Object does not exist)"},
		"object gone":           {edit: fault(410, ""), is: lfs.ErrNotFound, say: "removed"},
		"object invalid":        {edit: fault(422, "no"), say: "does not accept the pointer"},
		"object forbidden":      {edit: fault(403, ""), is: lfs.ErrAuth},
		"object code unknown":   {edit: fault(-7, "odd"), say: "status -7 (odd)"},
		"link to a file":        {edit: hrefTo("file:///etc/passwd"), is: lfs.ErrRefused, say: "no HTTP address"},
		"link to nowhere":       {edit: hrefTo("http://"), is: lfs.ErrRefused},
		"link malformed":        {edit: hrefTo("http://[::1"), is: lfs.ErrProtocol, say: "malformed"},
		"link empty":            {edit: hrefTo(""), is: lfs.ErrProtocol, say: "malformed"},
		"link with a huge head": {edit: edit(func(a *testenv.LFSAction) { a.Header = map[string]string{"X": strings.Repeat("x", 65<<10)} }), is: lfs.ErrProtocol, say: "more than 65536"},
		"header injected":       {edit: edit(func(a *testenv.LFSAction) { a.Header = map[string]string{"X": "a\r\nY: b"} }), is: lfs.ErrProtocol, say: "invalid header field"},
		"header name malformed": {edit: edit(func(a *testenv.LFSAction) { a.Header = map[string]string{"X Y": "a"} }), is: lfs.ErrProtocol, say: "invalid header field"},
		"download forbidden":    {defect: answer(testenv.LFSObject, 403, ``), say: "status 403"},
		"download absent":       {defect: answer(testenv.LFSObject, 404, ``), is: fs.ErrNotExist, say: "status 404"},
		"download partial":      {defect: answer(testenv.LFSObject, 206, `cont`), say: "status 206"},
		"wrong content":         {defect: &testenv.Defect{Phase: testenv.LFSObject, Do: testenv.Flip, After: 3}, say: "its SHA-256 is"},
		"truncated":             {defect: &testenv.Defect{Phase: testenv.LFSObject, Do: testenv.End, After: 3}, say: "ends after 3 of 12 bytes"},
		"cut":                   {defect: &testenv.Defect{Phase: testenv.LFSObject, Do: testenv.Cut, After: 3}},
		"too long":              {extra: "!", say: "its pointer tells 12"},
		"much too long":         {extra: strings.Repeat("!", 1<<20), say: "12"},
		"no content":            {defect: answer(testenv.LFSObject, 200, ``), say: "ends after 0 of 12 bytes"},
		"address too long":      {edit: hrefTo("http://" + strings.Repeat("x", 9000)), is: lfs.ErrProtocol, say: "more than 8192 bytes"},
		"batch that echoes":     {defect: answer(testenv.LFSBatch, 403, `{"message":"no `+canary+` here"}`), say: "(no *** here)"},
		"object that echoes":    {edit: fault(403, "no "+canary+" here"), say: "(no *** here)"},
		"header echoed": {
			edit:   edit(func(a *testenv.LFSAction) { a.Header = map[string]string{"X-Key": "of-a-link"} }),
			defect: answer(testenv.LFSObject, 403, `{"message":"no of-a-link here"}`), say: "(no *** here)",
		},
		"query echoed": {
			edit:   edit(func(a *testenv.LFSAction) { a.Href += "?sig=of-a-link" }),
			defect: answer(testenv.LFSObject, 403, `{"message":"no of-a-link here"}`), say: "(no *** here)",
		},
		"message cut":        {edit: fault(403, strings.Repeat("m ", 147)+"part-of-a-secret"), say: "m m…)"},
		"redirects for ever": {defect: answer(testenv.LFSBatch, 307, ``, "Location", ""), say: "redirect"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, &testenv.LFS{Edit: row.edit, Extra: row.extra})
			s.server.Break(row.defect)
			got, err := s.fill(t.Context())
			if err == nil || row.is != nil && !errors.Is(err, row.is) || !strings.Contains(err.Error(), row.say) {
				t.Fatalf("%v, %q; want %v, %s", err, got, row.is, row.say)
			}
			if !strings.Contains(err.Error(), "git lfs: ") || strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("the error is %q", err)
			}
		})
	}
}

func fault(code int, message string) func(*testenv.LFSAnswer) {
	return func(o *testenv.LFSAnswer) { o.Actions, o.Error = nil, &testenv.LFSError{Code: code, Message: message} }
}

// Failures that may pass are met with patience, and with no more than that.
func TestPatience(t *testing.T) {
	for name, row := range map[string]struct {
		defect *testenv.Defect
		times  int
		waits  []time.Duration
		say    string // of the error; "" when all ends well
	}{
		"batch limited":           {answer(testenv.LFSBatch, 429, ``, "Retry-After", "7"), 1, []time.Duration{7 * time.Second}, ""},
		"batch limited by date":   {answer(testenv.LFSBatch, 503, ``, "Retry-After", "Tue, 01 Jan 2030 00:00:09 GMT"), 1, []time.Duration{9 * time.Second}, ""},
		"batch limited at once":   {answer(testenv.LFSBatch, 429, ``, "Retry-After", "0"), 2, []time.Duration{0, 0}, ""},
		"batch down":              {answer(testenv.LFSBatch, 502, ``), 3, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, ""},
		"batch down for ever":     {answer(testenv.LFSBatch, 500, ``), 0, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, "status 500"},
		"batch asks for too long": {answer(testenv.LFSBatch, 429, ``, "Retry-After", "3600"), 0, nil, "asks to wait 1h0m0s"},
		"batch cut":               {&testenv.Defect{Phase: testenv.LFSBatch, Do: testenv.Cut, After: 10}, 1, []time.Duration{time.Second}, ""},
		"object limited":          {answer(testenv.LFSObject, 429, ``, "Retry-After", "5"), 1, []time.Duration{5 * time.Second}, ""},
		"object cut":              {&testenv.Defect{Phase: testenv.LFSObject, Do: testenv.Cut, After: 5}, 1, []time.Duration{time.Second}, ""},
		"object short":            {&testenv.Defect{Phase: testenv.LFSObject, Do: testenv.End, After: 5}, 1, []time.Duration{time.Second}, ""},
		"object wrong":            {&testenv.Defect{Phase: testenv.LFSObject, Do: testenv.Flip, After: 5}, 1, nil, "SHA-256"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, new(testenv.LFS))
			delete(s.files, "b.bin")
			row.defect.Times = row.times
			s.server.Break(row.defect)
			got, err := s.fill(t.Context())
			if row.say == "" && (err != nil || got["a.bin"] != "content of a") || row.say != "" && (err == nil || !strings.Contains(err.Error(), row.say)) {
				t.Errorf("%v, %q; want %q", err, got, row.say)
			}
			if fmt.Sprint(s.waits) != fmt.Sprint(row.waits) {
				t.Errorf("waited %v, want %v", s.waits, row.waits)
			}
		})
	}
}

// Nobody waits for what comes after the end.
func TestNoTimeLeft(t *testing.T) {
	s := newStage(t, new(testenv.LFS))
	s.server.Break(answer(testenv.LFSBatch, 429, ``, "Retry-After", "30"))
	s.client.Now = nil
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := s.fill(ctx); err == nil || !strings.Contains(err.Error(), "spec.timeout") || len(s.waits) > 0 {
		t.Errorf("%v after %v", err, s.waits)
	}
	// While somebody waits, the end comes all the same.
	s.client.Wait = nil
	ctx, later := context.WithTimeout(t.Context(), time.Hour)
	defer later()
	ctx, stop := context.WithCancelCause(ctx)
	enough := errors.New("enough")
	s.server.Break(answer(testenv.LFSBatch, 429, ``, "Retry-After", "10"))
	asked := 0
	s.client.Now = func() time.Time {
		if asked++; asked == 3 { // for the endpoint, for the answer, and before the wait
			stop(enough)
		}
		return time.Now()
	}
	if _, err := s.fill(ctx); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
	s.client.Now = nil
	defect := answer(testenv.LFSBatch, 429, ``, "Retry-After", "0")
	defect.Times = 1
	s.server.Break(defect)
	s.good(s.fill(t.Context()))
}

// A failure that lasts is not met with patience.
func TestLastingFailures(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	untrusted := testenv.ServeAll(t, testenv.HTTP{LFS: new(testenv.LFS), CA: testenv.NewCA(t)}, nil)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusProxyAuthRequired) }))
	defer refusing.Close()
	behind := func(*http.Request) (*url.URL, error) { return url.Parse(refusing.URL) }
	for _, row := range []struct {
		url   string
		proxy func(*http.Request) (*url.URL, error)
		say   string
	}{
		{closed.URL, nil, closed.URL + "/repo.git/info/lfs/objects/batch"},
		{untrusted.URL, nil, "certificate"},
		{"http://git.example", behind, "407"},
	} {
		s := newStage(t, new(testenv.LFS))
		s.at(t, row.url+"/repo.git")
		if row.proxy != nil {
			s.client.HTTP = transport.Client(transport.Config{Proxy: row.proxy})
		}
		if _, err := s.fill(t.Context()); err == nil || !strings.Contains(err.Error(), row.say) || len(s.waits) != 0 {
			t.Errorf("%s: %v after %v", row.url, err, s.waits)
		}
	}
	cutting := newStage(t, new(testenv.LFS))
	cutting.server.Break(&testenv.Defect{Phase: testenv.LFSBatch, Do: testenv.Cut, After: -1, Times: 1})
	cutting.good(cutting.fill(t.Context()))
	if len(cutting.waits) != 1 {
		t.Errorf("waited %v for a connection that broke", cutting.waits)
	}
}

// An error tells of a few objects, and how many more there are.
func TestManyFaults(t *testing.T) {
	s := newStage(t, &testenv.LFS{Edit: fault(404, strings.Repeat("long ", 1000))})
	for i := range 6 {
		s.files[fmt.Sprint(i, ".bin")] = &fstest.MapFile{Data: []byte(s.objects.Add(fmt.Sprint(i)))}
	}
	if _, err := s.fill(t.Context()); err == nil || !strings.Contains(err.Error(), "and 3 more") || strings.Count(err.Error(), "object ") != 5 || len(err.Error()) > 4000 {
		t.Errorf("%v", err)
	}
}

// A stall ends with the context, and everything is closed.
func TestStalls(t *testing.T) {
	for _, d := range []testenv.Defect{
		{Phase: testenv.LFSBatch, Do: testenv.Stall, After: -1}, {Phase: testenv.LFSBatch, Do: testenv.Stall, After: 10},
		{Phase: testenv.LFSObject, Do: testenv.Stall, After: -1}, {Phase: testenv.LFSObject, Do: testenv.Stall, After: 4},
	} {
		s := newStage(t, new(testenv.LFS))
		dir := t.TempDir()
		var spool *os.File
		s.options.Temp = func() (f *os.File, err error) { spool, err = os.CreateTemp(dir, "spool"); return spool, err }
		began := s.server.Break(&d)
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		go func() { <-began; cancel(enough) }()
		if _, err := s.fill(ctx); !errors.Is(err, enough) {
			t.Errorf("%+v: %v", d, err)
		}
		if spool.Close() == nil {
			t.Errorf("%+v: the spool is open", d)
		}
	}
}
