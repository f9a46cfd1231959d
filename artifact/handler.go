package artifact

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"syscall"
)

// Handler serves the artifacts, and nothing else, over HTTP (reference A5).
//
// It answers GET and HEAD of an artifact's path and of a pointer's
// KIND/NAMESPACE/NAME/POINTER, with ranges and conditional requests. The ETag
// is strong: the digest. Everything else does not exist (404), unless the store
// itself cannot be read (500); there are no listings. Mount it below a prefix
// with [http.StripPrefix].
func (s *Store) Handler() http.Handler { return http.HandlerFunc(s.serve) }

func (s *Store) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	p, caching, err := s.resolve(r)
	if err != nil {
		refuse(w, err)
		return
	}
	f, info, err := s.openRegular(p.path())
	if err != nil {
		refuse(w, err)
		return
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Type", contentType(p.file))
	h.Set("Cache-Control", caching)
	h.Set("ETag", `"`+p.hex+`"`)
	if field := reprDigest(s.digest(p)); field != "" {
		h.Set("Repr-Digest", field)
	}
	http.ServeContent(w, r, p.file, info.ModTime(), f)
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
	http.Error(w, "the store cannot be read", http.StatusInternalServerError)
}

// resolve returns the place that a request asks for, and how long an answer
// may be cached.
func (s *Store) resolve(r *http.Request) (p place, caching string, err error) {
	if escaped := strings.ToLower(r.URL.EscapedPath()); strings.Contains(escaped, "%2f") || strings.Contains(escaped, "%5c") {
		return place{}, "", fs.ErrInvalid
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	if p, ok := parsePlace(name); ok {
		return p, "public, max-age=31536000, immutable", nil
	}
	dir, file := path.Split(name)
	dir = strings.TrimSuffix(dir, "/")
	if err := cmp.Or(checkDir(dir), checkName(file)); err != nil || dir+"/"+file != name {
		return place{}, "", fs.ErrInvalid
	}
	p, err = s.target(dir, file)
	return p, "no-cache", err
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
