package artifact

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"syscall"
	"time"
)

// Handler serves the artifacts, and nothing else, over HTTP (reference A5).
//
// It answers GET and HEAD of an artifact's path and of a pointer's
// KIND/NAMESPACE/NAME/POINTER, with ranges, 16 at most in a request, and
// conditional requests. The ETag is strong: the digest, that of its target for a
// pointer. Everything else does not exist (404), unless the store itself cannot
// be read (500); there are no listings. Mount it below a prefix with
// [http.StripPrefix]. A caller that sets the header Cache-Control of the answer to
// private keeps artifacts out of shared caches.
//
// A file that is not as [Store.Put] or [Store.Verify] recorded it is hashed
// before it is served, and is not served when it is damaged (503). A download
// that has begun ends, whatever becomes of the file in the meantime.
func (s *Store) Handler() http.Handler { return http.HandlerFunc(s.serve) }

func (s *Store) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	f, caching, modified, err := s.requested(r)
	if err != nil {
		refuse(w, err)
		return
	}
	defer f.Close()
	h.Set("Content-Type", contentType(f.file))
	if h.Get("Cache-Control") == "private" {
		caching = strings.Replace(caching, "public", "private", 1)
	}
	h.Set("Cache-Control", caching)
	h.Set("ETag", `"`+f.hex+`"`)
	if field := reprDigest(f.digest); field != "" {
		h.Set("Repr-Digest", field)
	}
	if strings.Count(r.Header.Get("Range"), ",") >= maxRanges {
		r.Header.Del("Range") // each costs an answer of its own: all of the file is less
	}
	http.ServeContent(w, r, f.file, modified, f.File)
}

// refuse answers a request that cannot be served. Clients give up on what does
// not exist and try again when the store is at fault: too many open files.
func refuse(w http.ResponseWriter, err error) {
	for _, absent := range []error{fs.ErrNotExist, fs.ErrInvalid, syscall.ENOTDIR} {
		if errors.Is(err, absent) {
			http.Error(w, "no such artifact", http.StatusNotFound)
			return
		}
	}
	if _, damaged := errors.AsType[*DigestError](err); damaged {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "the artifact is damaged, and has to be fetched again", http.StatusServiceUnavailable)
		return
	}
	http.Error(w, "the store cannot be read", http.StatusInternalServerError)
}

// maxRanges are those that a request may ask for.
const maxRanges = 16

// requested opens what a request asks for. A pointer that changes while it is
// followed is followed again. It returns how long an answer may be cached, and when
// the content last became another, the zero time when that cannot be told.
func (s *Store) requested(r *http.Request) (f *storeFile, caching string, modified time.Time, err error) {
	if escaped := strings.ToLower(r.URL.EscapedPath()); strings.Contains(escaped, "%2f") || strings.Contains(escaped, "%5c") {
		return nil, "", modified, fs.ErrInvalid
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	if p, ok := parsePath(name); ok {
		if f, err = s.openIntact(p); err == nil {
			modified = f.info.ModTime()
		}
		return f, "public, max-age=31536000, immutable", modified, err
	}
	dir, file := path.Split(name)
	dir = strings.TrimSuffix(dir, "/")
	if err := cmp.Or(checkDir(dir), checkName(file)); err != nil || dir+"/"+file != name {
		return nil, "", modified, fs.ErrInvalid
	}
	for last := (storePath{}); ; {
		p, moved, err := s.target(dir, file)
		if err == nil {
			f, err = s.openIntact(p)
		}
		if err == nil && s.now().Sub(moved) > time.Second { // else it may have changed twice in the second that the header can tell
			modified = moved
		}
		if err == nil || !errors.Is(err, fs.ErrNotExist) || p == last {
			return f, "no-cache", modified, err
		}
		last = p
	}
}

// openIntact opens what lies at p, unless it is damaged. Of several requests for a
// file that is not as recorded one hashes it, and the others find its record.
func (s *Store) openIntact(p storePath) (*storeFile, error) {
	f, err := s.open(p, "")
	if err != nil {
		return nil, err
	}
	f.digest = s.recorded(f)
	if _, sum, err := ParseDigest(f.digest); err != nil || sum != p.hex {
		f.digest = s.digest(p)
		s.hashing.Lock()
		err = s.intact(f)
		s.hashing.Unlock()
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// contentTypes are the media types of artifacts, by extension.
var contentTypes = map[string]string{
	".gz":   "application/gzip",
	".json": "application/json",
	".tar":  "application/x-tar",
	".tgz":  "application/gzip",
	".yaml": "application/yaml",
	".yml":  "application/yaml",
}

func contentType(file string) string {
	if t, ok := contentTypes[strings.ToLower(path.Ext(file))]; ok {
		return t
	}
	return "application/octet-stream"
}

// reprDigest returns a digest as the field Repr-Digest carries it (RFC 9530),
// "" for an algorithm that the field does not know.
func reprDigest(digest string) string {
	algorithm, sum, err := ParseDigest(digest)
	if err != nil {
		return ""
	}
	name, ok := map[Algorithm]string{SHA256: "sha-256", SHA512: "sha-512"}[algorithm]
	raw, err := hex.DecodeString(sum)
	if !ok || err != nil {
		return ""
	}
	return name + "=:" + base64.StdEncoding.EncodeToString(raw) + ":"
}
