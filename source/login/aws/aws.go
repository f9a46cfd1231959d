// Package aws logs in to CodeCommit (reference A9), to buckets of S3 (reference
// A10), and to private and public registries of ECR (reference A11).
//
// The identity is that of the program. In a job of GitHub or Forgejo Actions
// with AWS_ROLE_ARN, and without AWS_ACCESS_KEY_ID, AWS_WEB_IDENTITY_TOKEN_FILE
// and AWS_PROFILE, it is that role, assumed with the job's identity token for
// the audience sts.amazonaws.com. Otherwise it is what the chain of the AWS SDK
// finds: variables of the environment, a web identity, the shared files with
// their profiles, the container's role, the instance's. A profile with
// credential_process makes the SDK run that program.
//
//   - The URL must be https://git-codecommit.REGION.amazonaws.com/v1/repos/NAME,
//     oci://ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME, oci://public.ecr.aws/NAME or
//     s3://s3.REGION.amazonaws.com/BUCKET, or what AWS calls those with FIPS, over
//     IPv6, in a private network and in its other partitions (endpoint.go). No other
//     host is shown anything.
//   - A role that is assumed with an identity token is one of the partition of
//     the URL: the token is shown to no other.
//   - The user name and password for CodeCommit are made anew for each use: the
//     password is a signature over host and path (its format is in sign.go) that
//     is good for 15 minutes. What is asked later in the same conversation is refused.
//   - The password for a registry is a token that ECR issues for all registries
//     of a region that the identity may use. Where it is issued follows from the
//     region alone.
//   - For a bucket the keys themselves are the credential, with their session
//     token. Where keys are issued by a token service it is the one of the
//     region, or that in the query of the URL, sts=https://HOST, which must be one
//     of AWS in the same partition.
//   - Temporary keys and tokens are used for 80 % of their life, an hour at most.
package aws

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecrpublic"
	"github.com/aws/smithy-go/middleware"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// A Provider logs in with the identity of the program, and keeps temporary keys
// and tokens.
type Provider struct {
	now    func() time.Time
	env    exchange.Environment
	keys   exchange.Credentials
	tokens exchange.Credentials
}

// New returns a provider that tells the time by now, and looks variables of the
// environment up with lookup; nil means [time.Now] and [os.LookupEnv]. The SDK
// reads the environment of the process itself.
func New(now func() time.Time, lookup func(string) (string, bool)) *Provider {
	if now == nil {
		now = time.Now
	}
	return &Provider{now: now, env: exchange.NewEnvironment(lookup),
		keys: exchange.Credentials{Now: now}, tokens: exchange.Credentials{Now: now}}
}

// Login is a [source.LoginFunc].
func (p *Provider) Login(ctx context.Context, r source.LoginRequest) (source.Credential, error) {
	at, client, err := exchange.Begin(r, endpointOf)
	if err != nil {
		return source.Credential{}, err
	}
	defer client.CloseIdleConnections()
	if at.service == registry || at.service == gallery {
		return p.registryCredential(ctx, client, at)
	}
	keys, err := p.identify(ctx, client, at)
	if err != nil || at.service == buckets {
		return keys, err
	}
	now := p.now()
	c := sign(keys, r.URL, at.region, now)
	if c.Expires = now.Add(validity); !keys.Expires.IsZero() && keys.Expires.Before(c.Expires) {
		c.Expires = keys.Expires
	}
	c.Refused = keys.Refused
	return c, nil
}

// identify returns the keys of the program as a credential for buckets.
func (p *Provider) identify(ctx context.Context, client *http.Client, at endpoint) (source.Credential, error) {
	return p.keys.Get(ctx, at.region+" "+at.issuer, func(ctx context.Context) (source.Credential, error) {
		if err := p.belongs(at.region); err != nil {
			return source.Credential{}, err
		}
		keys, err := p.retrieve(ctx, exchange.Until(ctx, client), at)
		if err != nil {
			return source.Credential{}, p.explain(ctx, "get the keys of this program", err)
		}
		c := source.Credential{Username: keys.AccessKeyID, Password: keys.SecretAccessKey, Token: keys.SessionToken}
		if keys.CanExpire {
			c.Expires = keys.Expires
		}
		return c, nil
	})
}

// registryCredential returns a credential for the registries at an endpoint. Keys
// that are refused are not used again.
func (p *Provider) registryCredential(ctx context.Context, client *http.Client, at endpoint) (source.Credential, error) {
	return p.tokens.Get(ctx, fmt.Sprint(at), func(ctx context.Context) (source.Credential, error) {
		keys, err := p.identify(ctx, client, at)
		if err != nil {
			return source.Credential{}, err
		}
		text, expires, err := ask(ctx, at, credentials.NewStaticCredentialsProvider(keys.Username, keys.Password, keys.Token), through(client))
		if err != nil {
			if err = p.explain(ctx, "get a token of "+at.service, err, keys.Password, keys.Token); errors.Is(err, source.ErrProvider) {
				keys.Refused()
			}
			return source.Credential{}, err
		}
		c, err := parse(aws.ToString(text))
		c.Expires, c.Refused = aws.ToTime(expires), keys.Refused
		return c, err
	})
}

// ask asks a service for an authorization token. The endpoint is that of
// the SDK's rules for the region; neither the environment nor a profile moves it.
func ask(ctx context.Context, at endpoint, keys aws.CredentialsProvider, sender func(*middleware.Stack) error) (token *string, expires *time.Time, err error) {
	fips, dual := aws.FIPSEndpointStateUnset, aws.DualStackEndpointStateUnset
	if at.fips {
		fips = aws.FIPSEndpointStateEnabled
	}
	if at.dual {
		dual = aws.DualStackEndpointStateEnabled
	}
	if at.service == gallery {
		o := ecrpublic.Options{Region: at.region, Credentials: keys, RetryMaxAttempts: attempts, APIOptions: []func(*middleware.Stack) error{sender}}
		o.EndpointOptions.UseDualStackEndpoint = dual
		out, err := ecrpublic.New(o).GetAuthorizationToken(ctx, nil)
		if err != nil || out.AuthorizationData == nil {
			return nil, nil, err
		}
		return out.AuthorizationData.AuthorizationToken, out.AuthorizationData.ExpiresAt, nil
	}
	o := ecr.Options{Region: at.region, Credentials: keys, RetryMaxAttempts: attempts, APIOptions: []func(*middleware.Stack) error{sender}}
	o.EndpointOptions.UseFIPSEndpoint, o.EndpointOptions.UseDualStackEndpoint = fips, dual
	out, err := ecr.New(o).GetAuthorizationToken(ctx, nil)
	if err != nil || len(out.AuthorizationData) == 0 {
		return nil, nil, err
	}
	return out.AuthorizationData[0].AuthorizationToken, out.AuthorizationData[0].ExpiresAt, nil
}

// parse takes user name and password out of an authorization token: USER:PASSWORD in base64.
func parse(text string) (source.Credential, error) {
	plain, err := base64.StdEncoding.DecodeString(text)
	user, password, found := strings.Cut(string(plain), ":")
	if err != nil || !found {
		return source.Credential{}, errors.New("the answer of the registry's token service holds no token that can be sent")
	}
	return source.Credential{Username: user, Password: password}, nil
}

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
