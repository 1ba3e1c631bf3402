{-# LANGUAGE OverloadedStrings #-}
-- Warp with its caches of file descriptors and file metadata (in seconds), as mighty uses it. Logs nothing.
import Network.HTTP.Types (status200)
import Network.Wai (pathInfo, responseFile, responseLBS)
import Network.Wai.Handler.Warp
import System.Environment (getArgs)
import qualified Data.Text as Text

main :: IO ()
main = do
  [port, root] <- getArgs
  let settings = setPort (read port) $ setHost "127.0.0.1" $ setTimeout 3600
               $ setFdCacheDuration 60 $ setFileInfoCacheDuration 60 defaultSettings
  runSettings settings $ \request respond -> respond $ case pathInfo request of
    ["hello"] -> responseLBS status200 [("Content-Type", "text/plain"), ("Content-Length", "12")] "HELLO, WORLD"
    path -> responseFile status200 [("Content-Type", "text/html")] (root ++ "/" ++ Text.unpack (Text.intercalate "/" path)) Nothing
