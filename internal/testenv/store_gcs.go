package testenv

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"hash/crc32"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// StartGCS runs an object store that serves objects.list, and objects.get with
// alt=media, of the JSON API of Google Cloud Storage, and issues tokens for keys of
// service accounts, until the test ends.
func StartGCS(t testing.TB, c StoreConfig) *Store {
	s := gcsDialect.start(t, c, true)
	s.URL = s.Host
	return s
}

// GCSFailure returns a defect that answers with an error in the format of Google Cloud Storage.
func GCSFailure(status int, code, message string) *Defect {
	return gcsDialect.failure(status, code, message)
}

var gcsDialect = dialect{route: routeGCS, verify: verifyGCS, serveAuth: exchangeKey, page: pageGCS, header: headerGCS, refuse: refuseGCS,
	codes: map[int]string{404: "notFound", 412: "conditionNotMet", 416: "requestedRangeNotSatisfiable"}}

// routeGCS expects the bucket and the key as one path segment each, in which slashes are encoded.
func routeGCS(_ *Store, r *http.Request) (phase Phase, bucket, key string) {
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/storage/v1/b/"), "/")
	for i := range parts {
		parts[i], _ = url.PathUnescape(parts[i])
	}
	switch {
	case r.URL.Path == tokenPath:
		return GetToken, "", ""
	case len(parts) == 3 && parts[1] == "o":
		return GetObject, parts[0], parts[2]
	}
	return ListObjects, parts[0], ""
}

// etagGCS returns the generation and the revision in base64, as fields 1 and 2 of a protocol buffer.
func etagGCS(o StoredObject) string {
	tag := binary.AppendUvarint([]byte{0x08}, uint64(o.generation))
	return base64.StdEncoding.EncodeToString(binary.AppendUvarint(append(tag, 0x10), uint64(o.revision)))
}

func headerGCS(h http.Header, o StoredObject) {
	sum := crc32.Checksum([]byte(o.Content), crc32.MakeTable(crc32.Castagnoli))
	h.Set("ETag", etagGCS(o))
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Goog-Generation", strconv.FormatInt(o.generation, 10))
	h.Set("X-Goog-Hash", "crc32c="+base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum)))
	h.Set("X-Goog-Stored-Content-Encoding", "identity")
	if o.Encoding != "" {
		h.Set("X-Goog-Stored-Content-Encoding", o.Encoding)
	}
}

// refuseGCS answers with an error: plain text if the request was for content, else JSON.
func refuseGCS(w http.ResponseWriter, r *http.Request, e *refusal) {
	switch {
	case r.URL.Path == tokenPath:
		writeJSON(w, e.status, map[string]string{"error": "invalid_grant", "error_description": e.message})
	case r.URL.Query().Get("alt") == "media":
		w.Header().Set("Content-Type", "text/plain; charset=UTF-8")
		w.WriteHeader(e.status)
		w.Write([]byte(e.message))
	default:
		writeJSON(w, e.status, map[string]any{"error": map[string]any{"code": e.status, "message": e.message, "errors": []any{map[string]string{"message": e.message, "reason": e.code}}}})
	}
}

func pageGCS(_ *Store, w http.ResponseWriter, _ *http.Request, p storePage) {
	page := map[string]any{"kind": "storage#objects"}
	if p.next != "" {
		page["nextPageToken"] = p.next
	}
	var items []map[string]string
	for i, o := range p.objects {
		items = append(items, map[string]string{"name": p.names[i], "etag": etagGCS(o), "size": strconv.Itoa(len(o.Content)), "generation": strconv.FormatInt(o.generation, 10)})
	}
	if items != nil {
		page["items"] = items
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	writeJSON(w, http.StatusOK, page)
}

func verifyGCS(s *Store, r *http.Request, _ []byte, _ Phase) *refusal {
	token, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch c := s.config; {
	case c.ServiceAccount+c.Token == "", !given && c.Anonymous, c.Token != "" && equalSecret(token, c.Token):
		return nil
	case !given:
		return &refusal{status: 401, code: "required", message: "Anonymous caller does not have storage.objects.list access to the Google Cloud Storage bucket."}
	}
	if _, _, valid := s.findCredential(token); valid {
		return nil
	}
	return &refusal{status: 401, code: "authError", message: "Invalid Credentials"}
}

// serviceAccountKey returns the key that all service accounts share.
var serviceAccountKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) // cannot happen with crypto/rand
	}
	return key
})

const serviceAccountKeyID = "0123456789abcdef"

// TokenURL returns the URL that issues tokens for keys of service accounts.
func (s *Store) TokenURL() string { return s.Base + tokenPath }

// Key returns the JSON key of the service account.
func (s *Store) Key() []byte {
	der, err := x509.MarshalPKCS8PrivateKey(serviceAccountKey())
	if err != nil {
		panic(err) // RSA keys can always be encoded
	}
	text, _ := json.Marshal(map[string]string{
		"type": "service_account", "private_key_id": serviceAccountKeyID, "private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"client_email": s.config.ServiceAccount, "token_uri": s.TokenURL(), "universe_domain": "googleapis.com",
	})
	return text
}

// exchangeKey issues a token for an assertion (RFC 7523).
func exchangeKey(s *Store, w http.ResponseWriter, r *http.Request, _ Phase) {
	proof := r.PostFormValue("assertion")
	if proof != "" { // a canceled request has none
		s.recordProof(proof)
	}
	claims := jwt.MapClaims{}
	token, err := jwt.ParseWithClaims(proof, claims, func(*jwt.Token) (any, error) { return &serviceAccountKey().PublicKey, nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(time.Minute))
	problem := ""
	switch {
	case err != nil || token.Header["kid"] != serviceAccountKeyID || r.PostFormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer":
		problem = "Invalid JWT."
	case s.config.ServiceAccount == "" || claims["iss"] != s.config.ServiceAccount:
		problem = "Invalid grant: account not found"
	case claims["aud"] != s.TokenURL():
		problem = "Invalid JWT: Failed audience check."
	case claims["scope"] != "https://www.googleapis.com/auth/devstorage.read_only":
		problem = "Invalid OAuth scope"
	}
	if problem != "" {
		refuseGCS(w, r, &refusal{status: 400, message: problem})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"access_token": s.issue("").token, "expires_in": 3599, "token_type": "Bearer"})
}
