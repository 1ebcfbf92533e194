import java.io.File;
import java.util.Arrays;
import org.apache.zookeeper.server.DataNode;
import org.apache.zookeeper.server.ZKDatabase;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/** Moves the counters of some znodes' children to a number, in the data folder of an Apache ZooKeeper that is not running. */
public final class AtTheEnd {
    public static void main(String[] args) throws Exception {
        if (args.length < 3) {
            System.err.println("usage: AtTheEnd DATA_FOLDER NUMBER PATH...");
            System.exit(2);
        }
        File folder = new File(args[0]);
        FileTxnSnapLog files = new FileTxnSnapLog(folder, folder);
        ZKDatabase database = new ZKDatabase(files);
        database.loadDataBase();
        for (String path : Arrays.asList(args).subList(2, args.length)) {
            DataNode node = database.getNode(path);
            if (node == null) {
                System.err.println("no znode " + path);
                System.exit(1);
            }
            node.stat.setCversion(Integer.parseInt(args[1]));
        }
        files.save(database.getDataTree(), database.getSessionWithTimeOuts(), true);
        files.close();
    }
}
