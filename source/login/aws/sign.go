package aws

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/source"
)

// validity is how long CodeCommit accepts a signature.
const validity = 15 * time.Minute

// sign makes the user name and password with which the owner of keys reads the
// repository at u.
//
// The user name is the access key id, with % and the session token where there
// is one. The password is the time as 20060102T150405, Z, and in hexadecimal
// the signature of version 4 over these lines, for the service codecommit:
//
//	AWS4-HMAC-SHA256
//	20060102T150405                             (without Z)
//	20060102/REGION/codecommit/aws4_request
//	SHA-256 of the request, in hexadecimal
//
// The request that stands for all requests of a conversation has the method
// GIT, no query, one header, and nothing where its content would be:
//
//	GIT
//	/v1/repos/NAME
//
//	host:HOST
//
//	host
//	                                            (the line break after host is the last byte)
func sign(keys source.Credential, u *url.URL, region string, now time.Time) source.Credential {
	stamp := now.UTC().Format("20060102T150405")
	scope := []string{stamp[:8], region, "codecommit", "aws4_request"}
	request := "GIT\n" + strings.TrimRight(u.EscapedPath(), "/") + "\n\nhost:" + strings.ToLower(u.Hostname()) + "\n\nhost\n"
	digest := sha256.Sum256([]byte(request))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", stamp, strings.Join(scope, "/"), hex.EncodeToString(digest[:])}, "\n")
	key := []byte("AWS4" + keys.Password)
	for _, part := range append(scope, text) {
		key = mac(key, part)
	}
	user := keys.Username
	if keys.Token != "" {
		user += "%" + keys.Token
	}
	return source.Credential{Username: user, Password: stamp + "Z" + hex.EncodeToString(key)}
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
