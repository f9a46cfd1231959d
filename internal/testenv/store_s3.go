package testenv

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// StartS3 runs an object store that serves ListObjectsV2 and GetObject of S3, in path
// style and virtual-host style, and AssumeRoleWithLDAPIdentity and
// AssumeRoleWithWebIdentity of its token service, until the test ends.
func StartS3(t testing.TB, c StoreConfig) *Store {
	if c.Region == "" {
		c.Region = "us-east-1"
	}
	s := s3Dialect.start(t, c, false)
	s.URL = s.Host
	return s
}

// S3Failure returns a defect that answers with an error in the format of S3.
func S3Failure(status int, code, message string) *Defect {
	return s3Dialect.failure(status, code, message)
}

var s3Dialect = dialect{route: routeS3, verify: verifyS3, serveAuth: assumeRole, page: pageS3, header: headerS3, refuse: refuseS3,
	codes: map[int]string{-404: "NoSuchBucket", 404: "NoSuchKey", 412: "PreconditionFailed", 416: "InvalidRange"}}

func routeS3(s *Store, r *http.Request) (phase Phase, bucket, key string) {
	bucket, key, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	host, _, _ := strings.Cut(r.Host, ":")
	for _, name := range s.config.Names {
		if b, ok := strings.CutSuffix(host, "."+name); ok && !slices.Contains(s.config.Names, host) {
			bucket, key = b, strings.TrimPrefix(r.URL.Path, "/")
		}
	}
	switch {
	case r.Method == http.MethodPost && bucket == "":
		return AssumeRole, "", ""
	case key != "":
		return GetObject, bucket, key
	}
	return ListObjects, bucket, ""
}

func headerS3(h http.Header, o StoredObject) {
	h.Set("ETag", `"`+o.etag+`"`)
	h.Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	h.Set("Content-Type", "binary/octet-stream")
}

func refuseS3(w http.ResponseWriter, r *http.Request, e *refusal) {
	writeXML(w, e.status, struct {
		XMLName               xml.Name `xml:"Error"`
		Code, Message, Region string
		Detail                string `xml:"StringToSign,omitempty"`
		Resource              string
	}{Code: e.code, Message: e.message, Region: e.region, Detail: e.detail, Resource: r.URL.Path})
}

func pageS3(_ *Store, w http.ResponseWriter, r *http.Request, p storePage) {
	type object struct {
		Key, ETag    string
		LastModified time.Time
		Size         int
	}
	spell := func(key string) string { return key }
	if r.URL.Query().Get("encoding-type") == "url" {
		spell = func(key string) string { return strings.ReplaceAll(url.QueryEscape(key), "%2F", "/") }
	}
	var objects []object
	for i, o := range p.objects {
		objects = append(objects, object{spell(p.names[i]), `"` + o.etag + `"`, o.modified.UTC(), len(o.Content)})
	}
	writeXML(w, http.StatusOK, struct {
		XMLName                    xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
		Name, Prefix, EncodingType string
		KeyCount, MaxKeys          int
		IsTruncated                bool
		NextContinuationToken      string   `xml:",omitempty"`
		Contents                   []object `xml:",omitempty"`
	}{Name: p.bucket, Prefix: spell(p.prefix), EncodingType: r.URL.Query().Get("encoding-type"), KeyCount: len(objects), MaxKeys: p.size,
		IsTruncated: p.next != "", NextContinuationToken: p.next, Contents: objects})
}

// verifyS3 checks a signature (AWS4-HMAC-SHA256) with an implementation other than that of
// the clients.
func verifyS3(s *Store, r *http.Request, _ []byte, _ Phase) *refusal {
	c, header := s.config, r.Header.Get("Authorization")
	if header == "" && (c.Anonymous || c.AccessKey+c.LDAPUsername+c.WebIdentityToken == "") {
		return nil
	}
	if header == "" {
		return &refusal{status: 403, code: "AccessDenied", message: "Access Denied"}
	}
	rest, _ := strings.CutPrefix(header, "AWS4-HMAC-SHA256 Credential=")
	fields := strings.FieldsFunc(rest, func(c rune) bool { return c == ',' || c == ' ' || c == '=' || c == '/' })
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if len(fields) != 9 || err != nil {
		return &refusal{status: 400, code: "AuthorizationHeaderMalformed", message: "The authorization header that you provided is not valid."}
	}
	key, region, signature := fields[0], fields[2], fields[8]
	s.recordProof(signature)
	k, known, valid := s.findCredential(key)
	if key == c.AccessKey && key != "" {
		k, known, valid = &credential{secret: c.SecretKey, token: c.SessionToken}, true, true
	}
	switch {
	case !known:
		return &refusal{status: 403, code: "InvalidAccessKeyId", message: "The AWS Access Key Id you provided does not exist in our records."}
	case !equalSecret(k.token, r.Header.Get("X-Amz-Security-Token")):
		return &refusal{status: 400, code: "InvalidToken", message: "The provided token is malformed or otherwise invalid."}
	case !valid:
		return &refusal{status: 400, code: "ExpiredToken", message: "The provided token has expired."}
	case s.now().Sub(at).Abs() > 15*time.Minute:
		return &refusal{status: 403, code: "RequestTimeTooSkewed", message: "The difference between the request time and the current time is too large."}
	case region != c.Region:
		return &refusal{status: 400, code: "AuthorizationHeaderMalformed", message: "the region '" + region + "' is wrong; expecting '" + c.Region + "'", region: c.Region}
	}
	again := r.Clone(r.Context())
	again.Header = http.Header{}
	for name := range strings.SplitSeq(fields[6], ";") {
		again.Header[http.CanonicalHeaderKey(name)] = r.Header[http.CanonicalHeaderKey(name)]
	}
	delete(again.Header, "Host")
	err = v4.NewSigner().SignHTTP(r.Context(), aws.Credentials{AccessKeyID: key, SecretAccessKey: k.secret, SessionToken: k.token}, again,
		hexSHA256(""), "s3", region, at, func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if want := again.Header.Get("Authorization"); err != nil || !strings.HasSuffix(want, "="+signature) {
		return &refusal{status: 403, code: "SignatureDoesNotMatch", message: "The request signature we calculated does not match the signature you provided.", detail: want + header}
	}
	return nil
}

func hexSHA256(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

const stsNamespace = "https://sts.amazonaws.com/doc/2011-06-15/"

// assumeRole issues temporary keys for a password or a token.
func assumeRole(s *Store, w http.ResponseWriter, r *http.Request, _ Phase) {
	action, c, known := r.FormValue("Action"), s.config, false
	switch action {
	case "AssumeRoleWithLDAPIdentity":
		known = c.LDAPUsername != "" && r.FormValue("LDAPUsername") == c.LDAPUsername && equalSecret(r.FormValue("LDAPPassword"), c.LDAPPassword)
	case "AssumeRoleWithWebIdentity":
		known = c.WebIdentityToken != "" && equalSecret(r.FormValue("WebIdentityToken"), c.WebIdentityToken)
	}
	if !known {
		type failure struct{ Type, Code, Message string }
		writeXML(w, http.StatusBadRequest, struct {
			XMLName xml.Name
			Error   failure
		}{xml.Name{Space: stsNamespace, Local: "ErrorResponse"}, failure{"Sender", "InvalidParameterValue", "the credentials are not valid"}})
		return
	}
	id := rand.Text()[:20]
	k := s.issue(id)
	type keys struct {
		AccessKeyID                               string `xml:"AccessKeyId"`
		SecretAccessKey, SessionToken, Expiration string
	}
	type result struct {
		XMLName     xml.Name
		Credentials keys
	}
	writeXML(w, http.StatusOK, struct {
		XMLName xml.Name
		Result  result
	}{xml.Name{Space: stsNamespace, Local: action + "Response"}, result{xml.Name{Local: action + "Result"}, keys{id, k.secret, k.token, k.expires.UTC().Format(time.RFC3339)}}})
}
