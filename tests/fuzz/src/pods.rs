//! Lists of pods from the API server, a kubelet or a file.

use virtlens_kube::parse_pods;

/// `data` is a list of pods, JSON.
pub fn pods(data: &[u8]) {
    let Ok(pods) = parse_pods(data, "node-a") else {
        return;
    };
    for (_, pod) in &pods {
        let spec = &pod.spec;
        let quota = spec.quota_millis();
        assert_eq!(quota.is_some(), spec.cpu_limit_millis.is_some());
        assert!(quota >= spec.cpu_limit_millis, "overhead only adds");
    }
}
