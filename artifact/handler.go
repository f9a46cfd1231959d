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

// Handler returns an HTTP handler that serves the artifacts and nothing else (reference A5).
//
// It answers GET and HEAD requests for the path of an artifact or for a pointer,
// KIND/NAMESPACE/NAME/POINTER. It supports conditional requests and ranges, at most 16 in a
// request. The ETag is strong: the digest of the artifact, or of the target of a pointer. Any other
// path gets status 404, or 500 if the store cannot be read. There are no listings. To serve it
// below a prefix, use [http.StripPrefix]. A caller that sets the header Cache-Control of the answer
// to private keeps artifacts out of shared caches.
//
// A file that has changed since [Store.Put] or [Store.Verify] recorded it is hashed before it is
// served; if it is damaged, the status is 503. A download that has begun is completed even if the
// file is removed meanwhile.
func (s *Store) Handler() http.Handler { return http.HandlerFunc(s.serve) }

func (s *Store) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	f, caching, modified, err := s.openRequested(r)
	if err != nil {
		writeError(w, err)
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
		r.Header.Del("Range") // each range costs a part of its own: the whole file is cheaper
	}
	http.ServeContent(w, r, f.file, modified, f.File)
}

// writeError answers a request that cannot be served. Clients give up if an artifact does not exist,
// and retry if the store is at fault, for example if it has too many open files.
func writeError(w http.ResponseWriter, err error) {
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

// maxRanges is the maximum number of ranges in a request.
const maxRanges = 16

// openRequested opens the file of a request. If a pointer changes while it is followed, it is followed
// again. requested also returns the Cache-Control of the response and the time when the content
// last changed, or the zero time if that is unknown.
func (s *Store) openRequested(r *http.Request) (f *storeFile, caching string, modified time.Time, err error) {
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
		if err == nil && s.now().Sub(moved) > time.Second { // otherwise it may have changed twice in the one second that the header can express
			modified = moved
		}
		if err == nil || !errors.Is(err, fs.ErrNotExist) || p == last {
			return f, "no-cache", modified, err
		}
		last = p
	}
}

// openIntact opens the file at p unless it is damaged. If several requests need a file that is not
// as recorded, one hashes it and the others use its record.
func (s *Store) openIntact(p storePath) (*storeFile, error) {
	f, err := s.open(p, "")
	if err != nil {
		return nil, err
	}
	f.digest = s.recordedDigest(f)
	if _, sum, err := ParseDigest(f.digest); err != nil || sum != p.hex {
		f.digest = s.digest(p)
		s.hashing.Lock()
		err = s.checkIntact(f)
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

// contentTypes are the media types of artifacts by extension.
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

// reprDigest returns a digest as a value of the field Repr-Digest (RFC 9530), or "" if the field
// does not support the algorithm.
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
