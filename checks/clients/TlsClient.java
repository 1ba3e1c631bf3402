import java.io.FileInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManagerFactory;

/** Sends requests over TLS: AUTHORITY VERSION KEY-STORE|none URL... Each request has a connection of its own. */
class TlsClient {
    static final char[] PASSWORD = "password".toCharArray();

    public static void main(String[] arguments) throws Exception {
        SSLContext context = context(arguments[0], arguments[2]);
        SSLParameters parameters = new SSLParameters();
        parameters.setProtocols(new String[] {arguments[1]});
        for (int index = 3; index < arguments.length; index++) {
            // The clients share the context, which has the sessions.
            HttpClient client = HttpClient.newBuilder().sslContext(context).sslParameters(parameters).build();
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[index])).build();
            HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
            if (response.statusCode() != 200) {
                throw new Exception(arguments[index] + " has the status " + response.statusCode());
            }
        }
        System.exit(0);
    }

    static SSLContext context(String authority, String own) throws Exception {
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        try (FileInputStream file = new FileInputStream(authority)) {
            trusted.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        if (!own.equals("none")) {
            try (FileInputStream file = new FileInputStream(own)) {
                store.load(file, PASSWORD);
            }
        }
        keys.init(store, PASSWORD);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }
}
